from easel.early import main

main()
