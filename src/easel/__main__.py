from easel.cli import main

main()
