"""The page of rules: the places in which a plain value would choose a program, or be code. RS-71

A row of the table has programs, a colon and members, some with options after `=`. A program may have
several rows.

    script   the first operand is a file that runs; without one the input is code
    input    the input is code
    code     letters of options whose value is code; `nocode`: of other programs -c and -e count, of these not
    operand  the number of the operand that is code; `skip`: options before it that take a value
    shell    its code is a text for a shell
    launch   the words after so many operands are a command; `verbs`: only after these; `take`: options with a
             value; `joins`: the words are one text for a shell; `feeds`: its input is appended to them
    files    options whose value is a command or a file that runs
    folder   runs the code of its folder
    evaluates  every operand is code; `verbs`: after these
    names    operands are names of variables; `numbers`: they are arithmetic; `copies`: they are written
    notext   reads a text as code
"""

import re
from collections.abc import Mapping

TABLE = """
sh bash dash ash zsh ksh mksh yash fish tcsh rbash pwsh: script shell code=c
sh bash dash ash zsh ksh: files=--rcfile,--init-file,-o,-O,+o,+O
su runuser script flock: shell code=c
python pypy: script code=c files=-m,-W,-X
perl: script code=eE files=-I,-M,-d
ruby lua luajit osascript Rscript elixir julia: script code=e files=-I,-r,-l
node nodejs deno bun tsx ts-node: script code=ep files=-r,--require,--import,--loader
php: script code=rBRE
expect: script code=c notext
java: script files=-cp,-classpath,--class-path,-javaagent,-agentpath,-XX
tclsh wish jshell: script
psql mysql mariadb sqlcmd: input notext files=-f,--file
sqlite sqlite3 duckdb: input notext operand=1 skip=-separator files=-init
mongo mongosh sqlplus redis-cli clickhouse-client: input notext
ed gdb lldb bc dc m4 irb iex ftp lftp telnet gnuplot at batch crontab: input notext files=-f,-x,-ex,--args
jq gojq: operand=0 code=  skip=--indent,--tab files=-f,--from-file,-L
yq: operand=1 skip=-o,-p
awk gawk mawk nawk: operand=0 code=e skip=-v,-F notext
awk gawk mawk nawk: files=-f,--file,-i,--include,-l,--load,-E,--exec,--source
sed gsed: operand=0 code=e skip=-l files=-f,--file
vim vi nvim view ex less more man emacs: plus notext files=-S,-s,-u,-P,--pager,-H
emacs nvim emacsclient: files=-l,--load,-f,--funcall,-a
sudo doas: launch=0 take=-u,-g,-h,-p,-C,-D,-R,-T,-U,-r,-t,--user,--group
env: launch=0 take=-u,-C,--unset,--chdir notext files=-S,--split-string
nohup setsid command builtin exec npx bunx uvx ltrace pkexec fakeroot xvfb-run busybox: launch=0 take=-a,-p
toybox numactl cpulimit prlimit firejail k3s microk8s sshpass: launch=0 take=-p,-f,-l,-N
time: launch=0 take=-f,-o
strace valgrind perf: launch=0 take=-o,-e,-p nocode
nice ionice stdbuf: launch=0 take=-n,-c,-i,-o,-e,--adjustment,--class nocode
timeout: launch=1 take=-s,-k,--signal,--kill-after
flock taskset chrt chroot gosu su-exec setpriv: launch=1 take=-w,-E,--timeout
xargs: launch=0 feeds notext take=-I,-n,-P,-L,-d,-a,-s,-E,-i,--max-args,--max-procs,--delimiter
parallel: launch=0 feeds joins input notext take=-j
watch: launch=0 joins take=-n,--interval
unshare nsenter: launch=0 take=-t,--target,-S,-G
runuser: launch=0 take=-u,-g,-G,--user
systemd-run: launch=0 take=-u,-p,-E,--unit,--property,--slice,--uid,--gid,--setenv,--description
ssh slogin rsh mosh autossh: launch=1 joins nocode files=-F,-o,-S,-I
ssh slogin rsh mosh autossh: take=-p,-i,-l,-J,-L,-R,-D,-b,-c,-E,-e,-m,-W,-w,-B,-Q
docker podman nerdctl docker-compose podman-compose: launch=1 verbs=exec,run,create nocode folder
docker podman nerdctl docker-compose podman-compose: files=--entrypoint,--config
docker podman nerdctl docker-compose podman-compose: take=-u,-e,-w,-v,-p,-f,-l,-h,-m
docker podman nerdctl: take=--name,--network,--net,--env,--user,--workdir,--volume
kubectl oc: launch=1 verbs=exec,run,debug nocode files=--kubeconfig take=-n,-c,-f,--namespace,--container
bundle poetry pipenv: launch=0 verbs=exec,run
npm: launch=0 verbs=exec,x folder notext
pnpm yarn: launch=0 verbs=exec,dlx folder notext
uv: launch=0 verbs=run take=--package,--with,--python
lxc incus ip: launch=1 verbs=exec
go: launch=0 verbs=run,tool folder files=-exec,-toolexec,-vettool
git: launch=0 verbs=run,foreach folder
git: files=-c,--config,--config-env,--template,--upload-pack,--receive-pack,--exec,-x,--extcmd,--exec-path,-O
make gmake just rake: folder notext files=-f,--file,--makefile,--justfile,--rakefile,-I,-E,-r,--shell
cmake: files=-P,-C
ninja task ant mvn gradle cargo terraform: folder notext
tar: nocode files=-I,-F,--use-compress-program,--to-command,--checkpoint-action
curl wget: nocode files=-K,--config,--use-askpass
rsync scp sftp: copies notext files=-e,-F,-o,-S,--rsh,--rsync-path
find fd: nocode files=-exec,-execdir,-ok,-okdir,-x,-X
ansible ansible-playbook: nocode notext files=-a,--args,-i,--inventory
sftp: input
scp sftp: files=-D,-b
tcpdump: files=-z
helm: files=--post-renderer,--kubeconfig
sort: nocode files=--compress-program
split zip: files=--filter,-TT,--unzip-command
cp mv ln install tee dd sponge: copies
grep egrep fgrep rg ag ping head tail wc cut ls uniq gzip bzip2 xz zcat zstd cat echo test [ gcc: nocode
chmod chown md5sum sha1sum sha256sum sha512sum ss ps netstat df du od diff cmp stat nmap ffmpeg nl: nocode
eval . source trap alias tmux screen crontab enable bind complete compgen entr: evaluates
git gh npm salt hash: evaluates=config,alias,set,cmd.run,cmd.shell,-p
fab salt: notext
read unset export declare typeset local readonly getopts mapfile readarray integer: names
let integer shift exit return break continue: numbers
"""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


class Rule:
    """The members of all rows of a program."""

    def __init__(self) -> None:
        self.options: dict[str, frozenset[str]] = {}

    def __contains__(self, what: str) -> bool:
        return what in self.options

    def __getitem__(self, what: str) -> frozenset[str]:
        return self.options.get(what, frozenset())

    def text(self, what: str) -> str:
        return "".join(self[what])


def _read(table: str) -> Mapping[str, Rule]:
    rules: dict[str, Rule] = {}
    for row in table.strip().splitlines():
        names, _, members = row.partition(": ")
        for rule in (rules.setdefault(name, Rule()) for name in names.split()):
            for member in members.split():
                what, _, options = member.partition("=")
                rule.options[what] = rule[what] | frozenset(filter(None, options.split(",")))
    return rules


RULES = _read(TABLE)
UNKNOWN = Rule()
UNNAMED = _read("x: launch=0")["x"]  # a program whose name is in a variable


def rule_of(program: str) -> Rule:
    return RULES.get(program, UNKNOWN if program else UNNAMED)


# Options of launchers without a value.
FLAGS = _words("-i -t -it -ti -d --rm -y --yes -q -n -E -H -S -r -0 -T")
CODE_OPTION = re.compile(r"--(?:eval|execute|exec|code|cmd|command|expression)|-[ce]|-ex|-cmd")
CODE_COMMANDS = _words("eval runner")  # subcommands whose operand is code
RUN_MODULES = _words("pdb runpy timeit cProfile profile trace coverage")
CONSOLES = _words("shell shell_plus console dbshell repl tinker")  # of a script: their input is code
FILE_OPTION = re.compile(
    r"--(?:[a-z-]+-)?(?:rsh|shell|hook|editor|pager|askpass|exec|script)|--[a-z-]+-(?:command|program|filter)"
)
# Options that name a folder with code that runs. A value there needs a literal folder before it.
FOLDER_OPTIONS = _words("-C --git-dir --work-tree --prefix --project-directory --directory -chdir")
OUTPUT_OPTIONS = _words("-o -O --output --output-document")
TESTS = _words("[ [[ test")
NUMBER_TESTS = _words("-eq -ne -lt -le -gt -ge")
NUMBER_VARIABLES = re.compile("S?RANDOM|SECONDS|OPTIND|LINENO|HIST.*|EPOCH.*|COLUMNS|LINES|TMOUT|FUNCNEST")
UNSAFE_VARIABLES = re.compile(
    "PATH|CDPATH|FPATH|ENV|BASH.*|HOME|ZDOTDIR|IFS|SHELL|PS[0-4]|EDITOR|VISUAL|.*PAGER|BROWSER|LESS.*|_|"
    "(?:SHELLOPTS|LD_|DYLD_|GIT_|PYTHON|PERL|RUBY|NODE_|KUBE|DOCKER_|npm_config_|NPM_CONFIG_|PIP_|COMPOSE_|"
    "ANSIBLE_|EASEL_).*|CLASSPATH|MAKE(?:FLAGS|FILES)?|CC|CXX|LD|AR|Exec.*|VIMINIT|EXINIT|OPENSSL_CONF|"
    ".*_(?:OPTIONS|OPTS|COMMAND|WRAPPER|RSH|ASKPASS)"
)
# Files that other programs run without naming them.
RUN_FILES = re.compile(
    r"(?:.*/)?(?:(?:GNUm|M|m)akefile|(?:Docker|Container|Vagrant|Jenkins|Rake|just)file|authorized_keys|"
    r"crontab|\.[a-z]*rc|\.gitconfig|\.[a-z_]*profile|\.z[a-z]*|(?:sitecustomize|conftest)\.py|"
    r"(?:cron\.[a-z]+|hooks|init\.d|profile\.d|sudoers\.d|\.git|\.ssh)/.*)"
)
DEVICES = _words("/dev/null /dev/stdout /dev/stderr /dev/tty")
FILTERS = _words("grep head tail sort uniq wc tr cut cat mail")  # any text may be piped to these
# In code: regular expressions in /…/, and marks that make it unclear where its quotes are.
SLASH_PROGRAMS = _words("awk gawk mawk nawk sed gsed vim vi nvim ex perl ruby node nodejs")
UNCLEAR = re.compile(r"#|//|/\*|--|<<|\$\$|%\W|\?['\"]|\b(?:q[qwxr]?|m|y|tr)\s*[^\w\s,;=)]|'''|\"\"\"")
CODE_IN_STRING = re.compile(r"\\\(|\{|\$\(")
