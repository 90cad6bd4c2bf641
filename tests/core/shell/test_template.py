"""Templates of commands: where a value may stand, what it must be there, and how it is inserted. RS-71"""

from __future__ import annotations

import contextlib

import pytest

from easel.core.shell.template import (
    MAX_COMMAND_LENGTH,
    MAX_TEXT_BYTES,
    ShellTemplate,
    Terms,
    compile_template,
)
from easel.core.values.template import Template, parse_template
from easel.errors import BadInput
from tests.core.stream.costs import least_seconds
from tests.requirements import case, rule

TEXT = Terms(texts=("state.x",))


def command(text: str, terms: Terms | None = None) -> ShellTemplate:
    template = parse_template(text, "command")
    assert isinstance(template, Template)
    return compile_template(template, "command", terms or Terms())


def fill(text: str, value: str | None, terms: Terms | None = None) -> str:
    template = command(text, terms)
    return template.fill([value] * len(template.slots), "command")[0]


ACCEPTED = [
    "kill -HUP $(cat /run/{{state.x}}.pid)",
    'OUT=$(docker inspect {{state.x}}); echo "$OUT"',
    "echo `cat {{state.x}}`",
    "diff <(cat a) <(cat {{state.x}})",
    'python -c "import sys; print(sys.argv[1])" {{state.x}}',
    "echo a # {{state.x}}",
    "sh -c 'echo \"$1\"' sh {{state.x}}",
    "awk -v ip={{state.x}} '$1 == ip' f",
    "ssh {{state.x}} uptime",
    'cat <<EOF > f.json\n{"a": "{{state.x}}"}\nEOF',
    "cat <<-'E'\n\t{{state.x}}!\n\tE\necho {{state.x}}",
    'for s in api {{state.x}}; do restart "$s"; done',
    'while read -r l; do echo "$l"; done < log/{{state.x}}',
    'f() { echo "$1"; }; f {{state.x}}',
    'case {{state.x}} in a|"{{state.x}}") echo 1;; *) echo 2;; esac | cat',
    "if [ -f {{state.x}} ]; then cat {{state.x}}; elif test {{state.x}}; then :; fi > /tmp/{{state.x}}",
    'echo ${V:-{{state.x}}} "${V%{{state.x}}}" ${HOME}{{state.x}}',
    "echo $'a\\n{{state.x}}' $\"{{state.x}}\"",
    "[[ {{state.x}} == a && ( b < c || -f d ) ]] && echo {{state.x}}",
    'a=(x {{state.x}}); echo "${a[@]}"',
    "echo {{state.x}} | xargs -n 1 echo",
    "find . -name {{state.x}} -exec rm {} \\;",
    "(cd /srv/{{state.x}} && make)",
    "make deploy VERSION={{state.x}}",
    "echo {{state.x}} 2>&1 >/dev/null",
    "git config user.name {{state.x}}",
    "echo {{state.x}} | ssh web 'cat > f'",
    "curl -o out/{{state.x}}.json https://a/{{state.x}} && ./run.sh",
    "jq '.[] | select(.id == \"{{state.x}}\")' f",
    "sed -n '/{{state.x}}/p' f",
    "sed 's/a/{{state.x}}/g' f",
    "awk '/{{state.x}}/ { print \"{{state.x}}\" }' f",
    "docker run -e NAME={{state.x}} alpine sh -c 'echo \"$NAME\"'",
    "head -c {{state.x}} f; grep -e {{state.x}} f; ping -c 1 {{state.x}}",
    "echo a; esac {{state.x}}",
    "awk -vname={{state.x}} '$1 == name' f",
    "foo -etag={{state.x}}",
    "python -c \"print('{{state.x}}')\" a",
    "time curl {{state.x}}",
    '"$PY" manage.py {{state.x}}',
    "bash -eo pipefail run.sh {{state.x}}",
    "docker run --env=A={{state.x}} alpine",
    "git push -u origin {{state.x}}",
    "json -c \"loads('{{state.x}}')\"",
    "make -f a.mk X={{state.x}}",
]


@rule("RS-71")
@pytest.mark.parametrize("text", ACCEPTED)
def test_value_is_inserted_as_it_is(text: str) -> None:
    assert fill(text, "w-1") == text.replace("{{state.x}}", "w-1")


REFUSED = {
    "command's name": [
        "{{state.x}}",
        "a; {{state.x}} b",
        "for ((i = 0; i < 3; i++)) do {{state.x}}; done",
        "./{{state.x}}.sh",
        "sudo -u app {{state.x}}",
        "env A=1 {{state.x}}",
        "timeout 5 nice {{state.x}}",
        "docker exec -it web {{state.x}}",
        "docker run --rm --gpus all img {{state.x}}",
        "kubectl exec -n a pod -- {{state.x}}",
        "git bisect run {{state.x}}",
        "x={{state.x}}; $x",
        "f() { $1; }; f {{state.x}}",
        "for c in {{state.x}}; do $c; done",
        "$(echo {{state.x}}) a",
        "sh -c '{{state.x}} a'",
        "ssh host {{state.x}}",
        "watch {{state.x}}",
        "if {{state.x}}; then a; fi",
        "echo $({{state.x}})",
        "{{state.x}}=1 env",
        "xargs sudo {{state.x}}",
        "strace -f {{state.x}}",
        "ip netns exec a {{state.x}}",
        "lxc exec a -- {{state.x}}",
        "time { {{state.x}}; }",
        "time -p { {{state.x}}; }",
        "time if {{state.x}}; then a; fi",
        "coproc N { {{state.x}}; }",
        "coproc N while {{state.x}}; do a; done",
        "for a do {{state.x}}; done",
        "{fd}>b {{state.x}}",
        "sh -c '$0' {{state.x}}",
        "sh -c 'for a; do $a; done' _ {{state.x}}",
        ": ${a:={{state.x}}}; $a",
        "printf -v a %s {{state.x}}; $a",
        "env - {{state.x}}",
        "trap '$a' EXIT; a={{state.x}}",
        '"$SUDO" {{state.x}}',
        "${SUDO:-sudo} {{state.x}}",
        "numactl -N 0 {{state.x}}",
        "docker-compose exec web {{state.x}}",
        "aws-vault exec x -- {{state.x}}",
    ],
    "operand of": [
        "eval echo {{state.x}}",
        ". {{state.x}}",
        "source a/{{state.x}}",
        "trap {{state.x}} EXIT",
        "alias a={{state.x}}",
        'y={{state.x}}; z=$y; eval "$z"',
        "tmux send-keys {{state.x}}",
        "crontab {{state.x}}",
        "git config a.b {{state.x}}",
    ],
    "in the script of": [
        "python {{state.x}}",
        "bash -x a-{{state.x}}",
        "node --inspect {{state.x}}",
        "bash <(echo {{state.x}})",
        "bash - {{state.x}}",
        "bash +x {{state.x}}",
        "bash -eo pipefail {{state.x}}",
        "python -m pdb {{state.x}}",
        "${PYTHON:-python3} {{state.x}}",
    ],
    "piped or redirected": [
        "echo {{state.x}} | sh",
        "echo {{state.x}} | # as on one line\n\nsh",
        "f() { sh; }; f <<< {{state.x}}",
        "f() { sh; }; echo {{state.x}} | f",
        "sh <<< {{state.x}}",
        "bash <<E\n{{state.x}}\nE",
        "sh < {{state.x}}",
        "psql < {{state.x}}",
        "cat {{state.x}} | (cd /tmp; bash)",
        "{ sh; } < {{state.x}}",
        "echo {{state.x}} | ssh web",
        "exec < {{state.x}}; sh",
        "echo {{state.x}} | python manage.py shell",
        "echo {{state.x}} | xargs sh -c 'echo {}'",
        "echo {{state.x}} | xargs env",
        "source /dev/stdin <<< {{state.x}}",
        "for i in 1; do echo {{state.x}}; done | docker exec -i a bash",
        "xargs < {{state.x}} sh -c",
        "xargs -a {{state.x}} sh",
        "bash /dev/fd/3 3<{{state.x}}",
        "sftp a < {{state.x}}",
    ],
    "name": [
        "${{{state.x}}}",
        "echo ${{state.x}}",
        'echo "$HOME{{state.x}}"',
        "unset {{state.x}}",
        "read {{state.x}}",
        "export {{state.x}}",
        "declare -n a={{state.x}}",
        "docker run -e {{state.x}} a",
        "printf -v {{state.x}} a",
        "[ -v {{state.x}} ]",
        'printf "-v{{state.x}}" a',
        "for {{state.x}} in a; do :; done",
        "{{state.x}}() { a; }",
        "function {{state.x}} { a; }",
        "rm -{{state.x}}",
    ],
    "in the variable": [
        "PATH={{state.x}} a",
        "GIT_DIR={{state.x}} git status",
        "export LD_PRELOAD={{state.x}}",
        "env ENV={{state.x}} sh a",
        "make SHELL={{state.x}}",
        "npm_config_x={{state.x}} npm i",
        "for IFS in {{state.x}}; do :; done",
        "docker run -e BASH_ENV={{state.x}} a",
        "x={{state.x}}; echo ${!x}",
        "docker run --env=BASH_ENV={{state.x}} a",
        "docker run -eBASH_ENV={{state.x}} a",
        "systemd-run -p ExecStartPre={{state.x}} a",
        "make CC={{state.x}}",
        "x={{state.x}} python -c 'import os; e[\"x\"]'",
    ],
    "the value of": [
        "git -c a={{state.x}} log",
        "tar -I {{state.x}} -xf a",
        "tar -I{{state.x}} -xf a",
        "rsync -e {{state.x}} a b",
        "ssh -oProxyCommand={{state.x}} h",
        "gdb --args {{state.x}}",
        "make -f {{state.x}}",
        "java -cp {{state.x}} Main",
        "kubectl --kubeconfig={{state.x}} get pods",
        "python -m {{state.x}}",
        "env -S'{{state.x}} a'",
        "env --split-string={{state.x}}",
        "rsync -ae {{state.x}} a b",
        "tar -xI{{state.x}} -f a",
        "tar --use-comp={{state.x}} -cf a b",
        "git clone -u {{state.x}} a",
        "git clone --template={{state.x}} a",
        "git clone --config core.pager={{state.x}} a",
        "git filter-branch --tree-filter {{state.x}}",
        "tar --rmt-command={{state.x}} -xf a",
        "java -javaagent:{{state.x}} -jar a",
        "awk --include={{state.x}} 1 f",
        "make -E {{state.x}}",
        "ssh -I {{state.x}} h a",
        "emacs -l {{state.x}}",
        "kubectl config set-credentials a --exec-command={{state.x}}",
    ],
    "folder": [
        "git -C {{state.x}} status",
        "make -C {{state.x}}",
        "cd {{state.x}} && ./run",
        "cd {{state.x}}; git pull",
    ],
    "which this command runs": [
        "echo {{state.x}} > a.sh; bash a.sh",
        "echo {{state.x}} | tee -a d/a.sh; ./a.sh",
        "cp {{state.x}} a.py && python a.py",
        "curl {{state.x}} -o a && sh a",
        "echo a{{state.x}} > {{state.x}} && ./deploy",
        "git clone h:{{state.x}} d && d/a",
        "cp {{state.x}} a.mk && make -f a.mk",
        "curl -sSo a https://h/{{state.x}}; sh a",
        "wget -Oa https://h/{{state.x}}; sh a",
    ],
    "which other programs run": [
        "echo {{state.x}} > Makefile",
        "cp {{state.x}} .git/hooks/a",
        "echo {{state.x}} >> ~/.bashrc",
        "echo {{state.x}} > .git/hooks/{{state.x}}",
        "cp {{state.x}} .git/config",
        "cp {{state.x}} ~/.gitconfig",
    ],
    "right": ["echo \\{{state.x}}", "echo ~{{state.x}}", "echo {{state.x}}>f", "echo 1{{state.x}}<f"],
    "pattern": ["case a in {{state.x}}) b;; esac"],
    "not closed": ["echo '{{state.x}}", 'echo "{{state.x}}', "echo ${a{{state.x}}"],
    "the command ends": [
        "(echo {{state.x}}",
        "echo $(a {{state.x}}",
        "if a {{state.x}}",
        "echo `a {{state.x}}",
    ],
    "here-document": ["cat <<E\n{{state.x}}"],
    "behind an option": ["sh -c -- {{state.x}}", "bash -c -x '{{state.x}} a'"],
    "in backticks": ["echo `echo \\`{{state.x}}\\``", "echo `a '` {{state.x}} `'`"],
    "an index with blanks": ["declare -A a; a[b c]=2 {{state.x}}"],
}


@rule("RS-71", "RS-16")
@case("X1")
@pytest.mark.parametrize("where, text", [(where, text) for where, texts in REFUSED.items() for text in texts])
def test_template_in_which_a_value_would_choose_a_program_is_refused(where: str, text: str) -> None:
    with pytest.raises(BadInput, match=r"^command: ") as refused:
        command(text)
    assert where in refused.value.message
    with pytest.raises(BadInput):
        command(text, TEXT)


DIGITS = [
    "echo $(( {{state.x}} + 1 ))",
    "(( a = {{state.x}} ))",
    "let a={{state.x}}",
    "[[ {{state.x}} -eq 5 ]]",
    "[ {{state.x}} -gt 5 ]",
    "echo ${a[{{state.x}}]} ${a:{{state.x}}}",
    "echo $[ {{state.x}} ]",
    "echo a{1..{{state.x}}}",
    "n={{state.x}}; echo $((n + 1))",
    "f() { echo $(($1)); }; f {{state.x}}",
    "declare -i n={{state.x}}",
    "x={{state.x}}; let y=x",
    "x={{state.x}}; [[ x -eq 1 ]]",
    "RANDOM={{state.x}}",
    "jq '.[{{state.x}}]' f",
    'jq ".{{state.x}}" f',
    "jq '\"\\({{state.x}})\"' f",
    "python -c 'print({{state.x}})'",
    "python -c \"print(f'{{{state.x}}}')\"",
    "sed -n '{{state.x}}p' f",
    "sed 's/a/{{state.x}}/e' f",
    "psql -c 'a = {{state.x}}'",
    "awk '{print ${{state.x}}}' f",
    "sqlite3 db '.read {{state.x}}'",
    'perl -e "# \'\n{{state.x}}"',
    "vim -c {{state.x}} f",
    "python -c \"'''a'b' {{state.x}}\"",
    "exit {{state.x}}",
    "echo 2>&{{state.x}}",
    "for ((i=0; i<{{state.x}}; i++)); do a; done",
    "a={{state.x}}; echo ${b[$a]}",
    "a={{state.x}}; b[a]=1",
    "python -c'import {{state.x}}'",
    "perl -e'print {{state.x}}'",
    "sed \"s,a,'{{state.x}}',\" f",
    "python -c \"os.system('{{state.x}}')\"",
    "node -e \"require('{{state.x}}')\"",
    "awk '{ print | \"{{state.x}}\" }' f",
    "awk '{ \"{{state.x}}\" | getline }' f",
    "integer a={{state.x}}",
    "a=([{{state.x}}]=1)",
    "a={{state.x}}; b=([$a]=1)",
]


@rule("RS-71")
@pytest.mark.parametrize("text", DIGITS)
def test_value_must_be_digits_where_it_is_code(text: str) -> None:
    assert fill(text, "42") == text.replace("{{state.x}}", "42")
    for value in ("EASEL_TEXT_1", "-1", "1.5", "a", "٣"):
        with pytest.raises(BadInput, match="must be digits"):
            fill(text, value)
    with pytest.raises(BadInput):
        command(text, TEXT)


@rule("RS-71")
def test_value_must_not_end_a_regular_expression_or_a_here_document() -> None:
    with pytest.raises(BadInput, match="would end the expression"):
        fill("sed 's/x/{{state.x}}/' f", "1/e")
    with pytest.raises(BadInput, match="would end the expression"):
        fill("sed -es/x/{{state.x}} f", "1/e")
    with pytest.raises(BadInput, match="would end the here-document at EOF"):
        fill("cat <<EOF\n{{state.x}}\nEOF", "EOF")


@rule("RS-71")
def test_error_names_the_placeholder_and_both_ways_out() -> None:
    with pytest.raises(BadInput) as refused:
        fill("echo {{state.x}}", "it's")
    assert refused.value.message == (
        'command: the value of {{state.x}} has the character "\'": it must be plain (letters, digits and '
        "_ . : / @ + , = -). Change the value, or, if the action needs any text there, name it in "
        '"text": ["state.x"].'
    )
    with pytest.raises(BadInput, match="allowOptions"):
        fill("echo {{state.x}}", "-n")
    assert fill("echo {{state.x}}", "-n", Terms(options=("state.x",))) == "echo -n"


@rule("RS-71")
def test_options_are_refused_for_programs_whose_options_run_a_command() -> None:
    for text in (
        "tar cf b.tar {{state.x}}",
        "git log {{state.x}}",
        "python a.py {{state.x}}",
        "sudo {{state.x}}",
    ):
        with pytest.raises(BadInput):
            command(text, Terms(options=("state.x",)))
    assert fill("ls -{{state.x}}", "la", Terms(options=("state.x",))) == "ls -la"


@rule("RS-57")
def test_missing_value_fails_unless_the_action_says_that_it_is_empty() -> None:
    empty = Terms(missing_is_empty=True)
    with pytest.raises(BadInput, match=r"{{state\.x}} has no value"):
        fill("rm -r build/{{state.x}}", None)
    with pytest.raises(BadInput, match="is empty"):
        fill("rm -r build/{{state.x}}", "")
    for value in ("", None):
        assert fill('rm -r build/{{state.x}} "{{state.x}}"', value, empty) == "rm -r build/'' \"\""
    for text in ("ls {{state.x}}-a", 'ls "{{state.x}}--all"', "sh -c 'timeout {{state.x}} a {{state.x}}'"):
        with pytest.raises(BadInput, match="must not be empty here"):
            fill(text, "", empty)


@rule("RS-71")
@pytest.mark.parametrize(
    "text, filled",
    [
        ('git commit -m "{{state.x}}"', 'git commit -m "${EASEL_TEXT_1}"'),
        ("git commit -m {{state.x}}", 'git commit -m "${EASEL_TEXT_1}"'),
        ("echo '{{state.x}}' | mail a", "echo ''\"${EASEL_TEXT_1}\"'' | mail a"),
        ('curl --data-urlencode "q={{state.x}}" a', 'curl --data-urlencode "q=${EASEL_TEXT_1}" a'),
        (
            "grep {{state.x}} f 2>/dev/null | sort | head -n 3",
            'grep "${EASEL_TEXT_1}" f 2>/dev/null | sort | head -n 3',
        ),
        ("sh -c 'echo \"$1\"' sh {{state.x}} && a > f", 'sh -c \'echo "$1"\' sh "${EASEL_TEXT_1}" && a > f'),
    ],
)
def test_any_text_reaches_the_command_through_its_environment(text: str, filled: str) -> None:
    template = command(text, TEXT)
    value = "it's $(touch PWN)\n`\"\\"
    assert template.fill([value], "command") == (filled, {"EASEL_TEXT_1": value})


NO_TEXT = [
    "echo a{{state.x}}",
    "echo {{state.x}}b",
    "echo --a-{{state.x}}",
    "V={{state.x}}; a",
    "export V={{state.x}}",
    "cat <<E\n{{state.x}}\nE",
    "cat <<< {{state.x}}",
    "echo {{state.x}} > f",
    "echo {{state.x}} 2>> f",
    "a > {{state.x}}",
    "echo {{state.x}} | tee f",
    "echo {{state.x}} | sort > f",
    "{ echo {{state.x}}; } > f",
    "(echo {{state.x}}) | jq .",
    "a=$(echo {{state.x}})",
    "echo $(a {{state.x}})",
    "sh -c 'echo {{state.x}}'",
    "ssh h echo {{state.x}}",
    "awk {{state.x}}",
    "exec > f; echo {{state.x}}",
    'f() { echo "$1" > a; }; f {{state.x}}',
    "for a in {{state.x}}; do b; done",
    "make A={{state.x}}",
    "perl -ne 1 {{state.x}}",
    "echo ${a:-{{state.x}}}",
    "jq '\"{{state.x}}\"' f",
    "echo a # {{state.x}}",
    "psql -v a={{state.x}} -f q",
    "env A={{state.x}} b",
    "ansible-playbook a -e b={{state.x}}",
    "xargs echo {{state.x}}",
    "scp h:{{state.x}} .",
    "npm run a -- {{state.x}}",
    'eval "$EASEL_TEXT_1"; echo {{state.x}}',
    "echo $((EASEL_TEXT_1)); echo {{state.x}}",
]


@rule("RS-71")
@pytest.mark.parametrize("text", NO_TEXT)
def test_any_text_is_refused_where_something_could_read_it_as_code(text: str) -> None:
    with pytest.raises(BadInput):
        command(text, TEXT)


@rule("RS-71")
def test_text_that_is_no_argument_is_refused() -> None:
    for value, why in (
        ("a\0", "character"),
        ("\ud800", "character"),
        ("-n", "an option"),
        ("x" * (MAX_TEXT_BYTES + 1), "bytes"),
    ):
        with pytest.raises(BadInput, match=why):
            fill("echo {{state.x}}", value, TEXT)
    with pytest.raises(BadInput, match=r"segment \.\."):
        fill("cat notes/{{state.x}}", "a/../../b", TEXT)
    assert fill("echo {{state.x}}", "", TEXT) == 'echo "${EASEL_TEXT_1}"'


@rule("RS-71")
def test_command_is_bounded() -> None:
    for text in (
        "echo {{state.x}}" + "a" * MAX_COMMAND_LENGTH,
        "echo {{state.x}} \x1b",
        "$(" * 30 + "a {{state.x}}",
    ):
        with pytest.raises(BadInput):
            command(text)
    fill("echo " + "{{state.x}} 'a' $b " * 150, "a")


LONG = {
    "launchers": "sudo " * 3_000,
    "options": "sudo -a sudo " * 1_500,
    "groups": "(" * 15_000,
    "arithmetic": "$[ " * 6_000,
    "opens": "$((" * 6_000,
    "variables": "".join(f"a{n}=$a{n + 1};" for n in range(1_200)),
    "code": "sed '" + "/e" * 9_000 + "' ",
    "flags": "sed 's/" + "e" * 18_000 + "' ",
    "blanks": " ;" * 9_000,
    "quotes": "'" * 18_000,
    "finds": "find -exec " * 1_700,
    "braces": "${" * 9_000,
    "arrays": "a=(" * 6_000,
    "documents": "cat <<E\n" * 2_000,
    "evaluations": "eval ssh a " * 1_500,
    "words": "echo a " + "a=$a " * 3_000,
}


@rule("RS-71")
@pytest.mark.parametrize("text", LONG.values(), ids=LONG)
def test_long_command_is_checked_quickly(text: str) -> None:
    def check() -> None:
        compile_template.cache_clear()
        with contextlib.suppress(BadInput):
            command(f"a{len(text)}={{{{state.x}}}}; {text}{{{{state.x}}}}")

    assert least_seconds(check, enough=1) < 1
