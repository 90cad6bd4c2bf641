"""Passwords that are guessed first: they are in the lists that attackers use.

`LONG` are common passwords of at least 12 characters. `WORDS` become one with digits and signs around them,
such as `Welcome-2026!`. Written in lower case, without the signs between letters. No network is asked.
"""

_LONG = """
    000000000000 111111111111 112233445566 121212121212 123123123123 1234567890-= 123456789000
    123456789012 1234567890123 123456789101112 123456789987654321 123456qwerty 123456abcdef
    123qwe123qwe 123qweasdzxc 123qwe!@#qwe 159753456852 1a2b3c4d5e6f 1q2w3e4r5t6y 1q2w3e4r5t6y7u
    1q2w3e4r5t6y7u8i 1q2w3e4r5t6y7u8i9o0p 1qaz2wsx3edc 1qaz2wsx3edc4rfv 1qazxsw23edc 1qaz@wsx3edc
    1qazxsw2#edc 1234qwerasdf 1234qwerasdfzxcv 123321123321 12qwaszx12qw a1b2c3d4e5f6 a1s2d3f4g5h6
    aaaaaaaaaaaa abc123abc123 abcd1234abcd abcd1234efgh abcdef123456 abcdefg12345 abcdefghijkl
    abcdefghijklm abcdefghijklmnopqrstuvwxyz acegikmoqsuwy adminadminadmin administrator
    administrator1 administrator123 adobe123adobe allalongthewatchtower amanaplanacanalpanama
    anotherpassword apple123apple asdf1234asdf asdfasdfasdf asdfghjkl123 asdfghjklqwe asdfghjkl;'#
    asdfjkl;asdf azertyuiop12 azertyuiopqs babygirl1234 barcelona123 baseball1234 basketball12
    batterystaple bismillah123 blink182blink butterfly123 changeitnow1 changeme1234 changemenow1
    changemeplease changethis123 changethispassword charlie12345 chocolate123 christmas123
    computer1234 computercomputer correcthorsebatterystaple cowboys12345 default12345
    defaultpassword dragonball123 dragonballz1 drowssapdrowssap elephant1234 everything123
    f00tball1234 facebook1234 football1234 forever12345 gfhjkmgfhjkm ghbdtnghbdtn godisgreat123
    google123456 guest1234567 helloworld12 helloworld123 hellohellohello homesweethome
    hunter2hunter2 icanhascheezburger ihavenopassword iloveyou1234 iloveyou12345 iloveyou2much
    iloveyouforever iloveyousomuch iloveyouverymuch internet1234 jesuschrist1 jesuslovesme
    justletmein1 justinbieber killerqueen1 lalalalalala letmein12345 letmein123456 letmeinletmein
    letmeinnow123 letmeinplease liverpool123 liverpoolfc1 logmein12345 lovelovelove manchester123
    manchesterunited maytheforcebewithyou metallica123 michael12345 minecraft123 monkey123456
    mypassword12 mypassword123 mypasswordispassword neversaydie1 newpassword1 newpassword123
    nopassword12 opensesame12 p@ssw0rd1234 p@ssw0rdp@ssw0rd pa55word1234 pass1234pass passpasspass
    passw0rd1234 passwd123456 password0000 password1111 password1212 password1234 password12345
    password123456 password1234567 password12345678 password123456789 password2020 password2021
    password2022 password2023 password2024 password2025 password2026 passwordpassword
    passwordpassword1 playstation1 playstation2 playstation3 pokemon12345 princess1234 q1w2e3r4t5y6
    q1w2e3r4t5y6u7 qazwsxedcrfv qazwsxedcrfvtgb qazwsxedc123 qazxswedcvfr qwer1234asdf qwer1234qwer
    qwerasdfzxcv qwerty123456 qwerty1234567 qwerty12345678 qwertyqwerty qwertyuiop12 qwertyuiop123
    qwertyuiop[] qwertyuiop1234567890 qwertyuiopasdf qwertyuiopasdfghjkl qwertyuiopasdfghjklzxcvbnm
    qweasdzxc123 qweasdzxcqwe qwe123qwe123 qweqweqweqwe rockyou12345 rootrootroot sandiego1234
    schalke04schalke secret123456 secretsecret secretpassword security1234 shadow123456 skateboard12
    slipknot1234 spongebob123 spongebobsquarepants starwars1234 stillwaters12 sunshine1234
    superman1234 supersecret1 supersecret123 superuser123 swordfish123 temporary123 temppassword
    test12345678 test1234test testing12345 testpassword testtesttest thisisapassword
    thisismypassword thisissecret thequickbrownfox tobeornottobe trustno1trustno1 trustnoone12
    unbelievable unknown12345 user12345678 verysecret12 welcome12345 welcome123456 welcomehome1
    welcomewelcome whateverwhatever whatever1234 whyhellothere winniethepooh wordpass1234
    wwwwwwwwwwww xxxxxxxxxxxx yankees12345 yellowsubmarine zaq12wsxcde3 zaq1xsw2cde3 zaqxswcdevfr
    zxcvbnm12345 zxcvbnmasdfg zxcvbnmasdfghjkl zxcvbnmzxcvbnm zzzzzzzzzzzz
"""
_WORDS = """
    abc abcd access account admin administrator asdf asdfgh asdfghjkl azerty babygirl baseball
    basketball batman changeit changeme changethis chocolate computer default demo dragon easel
    football freedom guest hello helloworld hunter iloveyou internet jesus killer letmein liverpool
    login love lovely master michael minecraft monkey mypassword newpassword nopassword ninja pass
    passphrase passw password passwd pokemon princess qazwsx qwert qwerty qwertyuiop qwertz root
    secret security server shadow soccer starwars summer autumn winter spring sunshine superman
    superuser temp temporary test testing trustno user welcome whatever zxcvbn zxcvbnm january
    february march april june july august september october november december monday tuesday
    wednesday thursday friday saturday sunday
"""
LONG = frozenset(_LONG.split())
WORDS = frozenset(_WORDS.split())
# Rows of keyboards, and letters and digits in order.
SEQUENCES = (
    "01234567890123456789",
    "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz",
    "qwertyuiopasdfghjklzxcvbnm",
    "qwertzuiopasdfghjklyxcvbnm",
    "azertyuiopqsdfghjklmwxcvbn",
    "1qaz2wsx3edc4rfv5tgb6yhn7ujm8ik9ol0p",
    "1q2w3e4r5t6y7u8i9o0p",
)
