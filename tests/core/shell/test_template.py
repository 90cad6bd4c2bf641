"""Which places of a shell command may hold a value, which may not, and which arguments are shell commands at all."""

from typing import Any

import pytest

from easel.core.shell import template as shell
from easel.core.shell.template import MAX_COMMAND_LENGTH, compile_template, is_shell
from easel.core.values.template import Template, parsed
from easel.errors import BadInput
from tests.core.stream.costs import least_seconds
from tests.requirements import case, rule


def template(text: str) -> Template:
    found = parsed(text, "command")
    assert isinstance(found, Template)
    return found


REFUSED = [
    # says                                template                                                      because
    ("a command substitution",            "show $(echo {{state.x}})",                                   "{{state.x}} stands in $(…)"),
    ("one in double quotes",              'show "$(echo \'{{state.x}}\')"',                             "stands in $(…)"),
    ("one deep inside",                   "show $(echo $(echo {{state.x}}))",                           "stands in $(…)"),
    ("backticks",                         "show `echo {{state.x}}`",                                    "in backticks"),
    ("backticks in double quotes",        'show "`echo {{state.x}}`"',                                  "in backticks"),
    ("arithmetic",                        "show $((1 + {{state.x}}))",                                  "in arithmetic"),
    ("old arithmetic",                    "show $[1 + {{state.x}}]",                                    "$[ is not understood"),
    ("an arithmetic command",             "((a = {{state.x}}))",                                        "((…)) is not understood"),
    ("arithmetic of let",                 "let a={{state.x}}",                                          "`let`, which evaluates"),
    ("an array's index",                  "a[{{state.x}}]=1",                                           "unquoted ["),
    ("a default",                         "show ${V:-{{state.x}}}",                                     "in ${…}"),
    ("a default in double quotes",        'show "${V:-{{state.x}}}"',                                   "in ${…}"),
    ("a here-document",                   "cat <<EOF\n{{state.x}}\nEOF",                                "in a here-document"),
    ("a literal here-document",           "cat <<'EOF'\n{{state.x}}\nEOF",                              "in a here-document"),
    ("an indented here-document",         "cat <<-EOF\n\t{{state.x}}\n\tEOF",                           "in a here-document"),
    ("the line of a here-document",       "cat <<EOF {{state.x}}\nEOF",                                 "behind <<"),
    ("the end of a here-document",        "cat <<{{state.x}}\nEOF",                                     "plain word, such as EOF"),
    ("a here-document in a substitution", "show $(cat <<EOF\nEOF\n) {{state.x}}",                       "here-document inside of $(…)"),
    ("a here-document without end",       "cat {{state.x}} <<EOF\nEO",                                  "no line EOF"),
    ("a comment",                         "show a # for {{state.x}}",                                   "in a comment"),
    ("a process substitution",            "diff <(echo {{state.x}}) f",                                 "process substitution"),
    ("eval",                              "eval ls {{state.x}}",                                        "`eval`, which evaluates"),
    ("sh -c",                             "sh -c 'ls {{state.x}}'",                                     "`sh`, which evaluates"),
    ("sh -c, its arguments",              "sh -c 'ls \"$1\"' sh {{state.x}}",                           "`sh`, which evaluates"),
    ("a shell by its path",               "/usr/bin/bash -lc \"ls {{state.x}}\"",                       "`bash`, which evaluates"),
    ("a shell in disguise",               "b'a'\"s\"\\h -c {{state.x}}",                                "`bash`, which evaluates"),
    ("a shell behind env",                "env A=1 bash -c {{state.x}}",                                "`bash`, which evaluates"),
    ("a shell behind sudo",               "sudo -u root sh -c {{state.x}}",                             "`sh`, which evaluates"),
    ("a shell in a container",            "docker exec web sh -c 'ls {{state.x}}'",                     "`sh`, which evaluates"),
    ("a shell that reads a here-string",  "sh <<< {{state.x}}",                                         "`sh`, which evaluates"),
    ("a shell that reads a pipe",         "echo {{state.x}} | sh",                                      "behind a pipe"),
    ("a shell, later in the pipe",        "echo {{state.x}} | cat | sudo -n bash",                      "behind a pipe"),
    ("a shell in a group behind a pipe",  "echo {{state.x}} | { cat; sh; }",                            "behind a pipe"),
    ("a login shell behind a pipe",       "echo {{state.x}} | sudo -s",                                 "behind a pipe"),
    ("xargs behind a pipe",               "echo {{state.x}} | xargs rm",                                "behind a pipe"),
    ("eval behind a pipe",                "echo {{state.x}} | eval \"$(cat)\"",                         "behind a pipe"),
    ("python -c",                         "python3.11 -c 'print(\"{{state.x}}\")'",                     "`python`, which evaluates"),
    ("perl -e",                           "perl -e 'print {{state.x}}'",                                "`perl`, which evaluates"),
    ("awk",                               "awk '/{{state.x}}/' f",                                      "`awk`, which evaluates"),
    ("sed",                               "sed -n {{state.x}}p f",                                      "`sed`, which evaluates"),
    ("make",                              "make V={{state.x}}",                                         "`make`, which evaluates"),
    ("another machine",                   "ssh host ls {{state.x}}",                                    "`ssh`, which evaluates"),
    ("a trap",                            "trap 'rm {{state.x}}' EXIT",                                 "`trap`, which evaluates"),
    ("source",                            ". {{state.x}}",                                              "`.`, which evaluates"),
    ("find -exec",                        "find . -exec {{state.x}} ;",                                 "behind -exec"),
    ("a format",                          "printf \"{{state.x}}\"",                                     "`printf` has its format"),
    ("a variable of printf",              "printf -v V '%s' {{state.x}}",                               "`printf` has its format"),
    ("a number that test compares",       "[ {{state.x}} -eq 1 ]",                                      "beside -eq"),
    ("the name of a variable",            "export {{state.x}}=1",                                       "the name of a variable"),
    ("a name that read sets",             "read {{state.x}}",                                           "`read`, which evaluates"),
    ("a name that is unset",              "unset {{state.x}}",                                          "`unset`, which evaluates"),
    ("the command",                       "{{state.x}} a",                                              "where a command's name belongs"),
    ("part of the command",               "./{{state.x}}/run",                                          "where a command's name belongs"),
    ("a command in quotes",               "\"{{state.x}}\" a",                                          "where a command's name belongs"),
    ("a command after another",           "cd /srv && {{state.x}}",                                     "where a command's name belongs"),
    ("a command in a condition",          "if {{state.x}}; then ls; fi",                                "where a command's name belongs"),
    ("a command after an assignment",     "A=1 {{state.x}}",                                            "where a command's name belongs"),
    ("a command after a redirection",     "> log {{state.x}}",                                          "where a command's name belongs"),
    ("the command that sudo runs",        "sudo -u {{state.u}} {{state.x}}",                            "{{state.x}} stands where a command's name"),
    ("the command that timeout runs",     "timeout -k 5 5 {{state.x}}",                                 "where a command's name belongs"),
    ("behind an unknown option",          "sudo --weird ls {{state.x}}",                                "option of `sudo`"),
    ("behind an unknown program",         "$CMD {{state.x}}",                                           "write the program's name out"),
    ("the search path",                   "PATH={{state.x}} ls",                                        "in the variable PATH"),
    ("a preloaded library",               "env LD_PRELOAD={{state.x}} ls",                              "in the variable LD_PRELOAD"),
    ("a number of the shell's own",       "RANDOM={{state.x}}",                                         "in the variable RANDOM"),
    ("a variable in a loop's head",       "for IFS in {{state.x}}; do ls; done",                        "in the variable IFS"),
    ("a brace expansion",                 "show {a,{{state.x}}}",                                       "unquoted {"),
    ("a range of characters",             "ls [{{state.x}}]*",                                          "unquoted ["),
    ("a home folder",                     "ls ~{{state.x}}",                                            "right after ~"),
    ("a home folder in an assignment",    "V=a:~{{state.x}}",                                           "right after ~"),
    ("a dollar sign",                     "show ${{state.x}}",                                          "right after a $"),
    ("a dollar sign in double quotes",    'show "${{state.x}}"',                                        "right after a $"),
    ("ANSI quotes",                       "show $'{{state.x}}'",                                        "$' is not understood"),
    ("translated quotes",                 'show $"{{state.x}}"',                                        '$" is not understood'),
    ("a backslash",                       "show \\{{state.x}}",                                         "right after a backslash"),
    ("a backslash in double quotes",      'show "\\{{state.x}}"',                                       "right after a backslash"),
    ("a continued word",                  "show a\\\n{{state.x}}",                                      "continued inside of a word"),
    ("a continued dollar",                "show $\\\n{{state.x}}",                                      "not understood"),
    ("a continued word in quotes",        'show "$\\\n{{state.x}}"',                                    "not understood"),
    ("a file descriptor",                 "show a >&{{state.x}}",                                       "file descriptor"),
    ("an open quote",                     "show '{{state.x}}",                                          "' is not closed"),
    ("an open double quote",              'show "{{state.x}}',                                          '" is not closed'),
    ("an open bracket",                   "(show {{state.x}}",                                          "not closed"),
    ("a function",                        "f() { eval \"$1\"; }; f {{state.x}}",                        "a function"),
    ("a function by name",                "function f { ls; }; f {{state.x}}",                          "`function` is not understood"),
    ("an array",                          "a=({{state.x}})",                                            "an array"),
    ("bash's own test",                   "[[ {{state.x}} == a ]]",                                     "`[[` is not understood"),
    ("an alias",                          "alias a=b; a {{state.x}}",                                   "`alias` changes"),
    ("an extended pattern",               "ls !({{state.x}})",                                          "a pattern"),
    ("case in a substitution",            "show $(case a in a) ls;; esac) {{state.x}}",                 "`case` inside of $(…)"),
    ("a comment in a substitution",       "show $(ls # it's\n) {{state.x}}",                            "comment inside of $(…)"),
    ("backticks with quotes",             "show `echo '`'` {{state.x}}",                                "backticks with quotes"),
    ("an unreadable expansion",           "show ${V@P} {{state.x}}",                                    "${V@P} is not understood"),
    ("an indirect expansion",             "show ${!V} {{state.x}}",                                     "${!V} is not understood"),
    ("a here-document with substitution", "cat {{state.x}} <<EOF\n$(ls)\nEOF",                          "quote its end"),
    ("a carriage return",                 "show {{state.x}}\r\n",                                       "control characters"),
    ("a NUL",                             "show \0 {{state.x}}",                                        "control characters"),
    ("an option of its own",              "show -{{state.x}}",                                          "is an option of its own"),
    ("a long option of its own",          "show --{{state.x}}",                                         "is an option of its own"),
    # what a variable carries
    ("a variable, not quoted",            "V={{state.x}}; show $V",                                     '$V may hold the value'),
    ("a variable in a substitution",      "V={{state.x}}; show \"$(echo \"$V\")\"",                     '$V may hold the value'),
    ("a variable in arithmetic",          "V={{state.x}}; show $((V + 1))",                             '$V may hold the value'),
    ("a variable in a here-document",     "V={{state.x}}; cat <<EOF\n$V\nEOF",                          '$V may hold the value'),
    ("a variable in backticks",           "V={{state.x}}; show `echo $V`",                              '$V may hold the value'),
    ("a variable that is cut",            "V={{state.x}}; show \"${V%a}\"",                             '$V may hold the value'),
    ("a variable that is evaluated",      "V={{state.x}}; eval \"$V\"",                                 "$V, which may hold"),
    ("a variable that is evaluated late", "V={{state.x}}; trap 'echo $V' EXIT",                         "`trap` evaluates a text that names"),
    ("a variable that is the command",    "V={{state.x}}; \"$V\" a",                                    "$V, which may hold"),
    ("a copy of a variable",              "V={{state.x}}; W=\"$V\"; X=\"a$W\"; sh -c \"$X\"",           "$X, which may hold"),
    ("a copy that is made later",         "while ls $W; do W=\"$V\"; V={{state.x}}; done",              '$W may hold the value'),
    ("a variable of a loop",              "for f in a {{state.x}}; do show $f; done",                   '$f may hold the value'),
    ("an exported variable",              "export V={{state.x}}; eval \"$V\"",                          "$V, which may hold"),
    ("what was read from a pipe",         "echo {{state.x}} | while read -r l; do eval \"$l\"; done",   "$l, which may hold"),
    ("what was read without a name",      "echo {{state.x}} | { read; eval \"$REPLY\"; }",              "$REPLY, which may hold"),
    ("the last word of the last command", "show {{state.x}}; eval $_",                                  "$_ may hold the value"),
    ("a search path from a variable",     "V={{state.x}}; PATH=\"$V\" ls",                              "in the variable PATH"),
]  # fmt: skip


@rule("RS-16")
@case("X1")
@pytest.mark.parametrize(
    "text, because", [(text, because) for _, text, because in REFUSED], ids=[says for says, _, _ in REFUSED]
)
def test_a_value_has_no_place_here(text: str, because: str) -> None:
    with pytest.raises(BadInput) as refusal:
        compile_template(template(text), "actions.deploy.args.command")
    assert refusal.value.message.startswith("actions.deploy.args.command: ")
    assert because in refusal.value.message


ACCEPTED = [
    "./deploy {{state.service}} {{state.version}}",
    "journalctl -u {{state.service}} -n 80",
    "cd {{state.folder}} && git pull && npm run build",
    "kubectl -n {{state.ns}} rollout restart deploy/{{state.app}}",
    "docker run --rm -e NAME={{state.x}} image:{{state.tag}} ./run {{state.x}}",
    "curl -fsS --data-urlencode q={{input.q}} https://example.com/ > {{state.out}} 2>&1",
    "python3 tool.py {{state.x}}; python3 -m tool {{state.x}}; bash ./x.sh {{state.x}}; node x.js {{state.x}}",
    "sudo -u deploy -n systemctl restart {{state.unit}}",
    "find . -name {{state.x}} -exec ls {} +",
    'eval "$(ssh-agent)"; git push origin {{state.branch}}',
    "set -eu; trap 'rm -f /tmp/lock' EXIT; ./deploy {{state.x}}",
    'while read -r line; do echo "$line" {{state.x}}; done < list',
    'case {{state.env}} in prod|live) ./a {{state.x}};; (dev) ./b;; *) exit 1;; esac',
    "if ! grep -q {{state.x}} f; then echo {{state.x}} >> f; elif [ -f a ]; then ./b; else ./c; fi",
    "until curl -f {{state.url}}; do sleep 1; done",
    "(cd a; ./b {{state.x}}) | tee log | tail -n 5",
    "{ ./a; ./b {{state.x}}; } > out 2>> err < /dev/null",
    "time ./a {{state.x}}; nohup ./b {{state.x}} &",
    "show {{state.x}} ; # and so on: don't",
    'grep -- "{{state.x}}" f | wc -l',
    "echo {{state.x}} | while read l; do echo \"$l\"; done",
    "show $(date +%s) `date` $((1 + (2 * 3))) ${A:-b} ${#A} ${A##*/} $? $# $1 {{state.x}}",
    'jq -r .name <<< {{state.json}}',
    '"$HOME"/bin/run {{state.x}}',
    "./a {{state.x}} |& cat; ./b &> log",
]  # fmt: skip


@rule("RS-16")
@pytest.mark.parametrize("text", ACCEPTED)
def test_what_people_write_is_understood(text: str) -> None:
    compile_template(template(text), "command")


@rule("RS-16")
def test_an_action_may_allow_its_values_to_be_options() -> None:
    assert (
        compile_template(template("head -{{state.n}} f"), "c", allows_options=True).filled(
            ["5"], "c", missing_is_empty=False
        )
        == "head -5 f"
    )


@rule("RS-16")
@case("X2")
def test_values_together_cannot_make_an_option_either() -> None:
    command = compile_template(template('show {{state.a}}"{{state.b}}"$HOME{{state.c}}'), "c")
    with pytest.raises(BadInput, match=r"the value of {{state\.b}} begins with -"):
        command.filled(["", "-rf", "x"], "c", missing_is_empty=False)
    with pytest.raises(BadInput, match=r"the value of {{state\.c}} begins with -"):
        command.filled(["", "", "-rf"], "c", missing_is_empty=False)
    command.filled(["a", "-rf", "-x"], "c", missing_is_empty=False)
    with pytest.raises(BadInput, match="a file of arguments"):
        compile_template(template("curl --data={{state.a}}"), "c").filled(
            ["@/etc/passwd"], "c", missing_is_empty=False
        )


def test_a_hostile_template_is_refused_quickly() -> None:
    nested = [
        f"{'$(' * 5_000}{{{{state.x}}}}",
        f"{'(' * 5_000}show {{{{state.x}}}}",
        f"{'case a in a) ' * 1_000}show {{{{state.x}}}}",
    ]
    long = [
        "show {{state.x}} " + "a" * MAX_COMMAND_LENGTH,
        "show {{state.x}} " + "a" * (MAX_COMMAND_LENGTH - 20),
        "${" * 9_000 + "{{state.x}}",
    ]
    many = [
        "show" + " {{state.x}}" * 200,
        "V={{state.x}};" * 200,
        "show {{state.x}}|cat " * 200,
        "cat <<EOF {{state.x}}\n" * 200,
    ]
    signs = [
        "show " + "-=" * 9_000 + " {{state.x}}",
        "show " + "sh - " * 3_500 + "{{state.x}}",
        "eval a|" * 2_500 + "show {{state.x}}",
    ]
    chain = ["".join(f'V{n}="$V{n - 1}";' for n in range(1_200, 0, -1)) + 'V0={{state.x}}; show "$V1200"']
    chain += [chain[0] + "eval '$a';" * 300]

    def refuse() -> None:
        shell._understood.cache_clear()  # pyright: ignore[reportPrivateUsage] - else only the first time costs anything
        for text in (*signs, *chain, *nested, *long, *many):
            try:
                compile_template(template(text), "c")
            except BadInput:
                continue

    assert least_seconds(refuse, enough=2) < 2


# --- which arguments a shell reads --------------------------------------------------------------------------------------

SHELL = {"type": "string", "x-shell": True}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "command": SHELL,
        "workdir": {"type": "string"},
        "not_quite": {"x-shell": "true"},
        "steps": {
            "type": "array",
            "items": {"type": "object", "properties": {"run": SHELL, "name": {"type": "string"}}},
        },
        "both": {"type": "array", "prefixItems": [SHELL, {"type": "string"}]},
        "either": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/command~1line"}]},
        "all_of_it": {"type": "object", "x-shell": True},
        "matched": {"patternProperties": {"^run_": SHELL}},
        "others": {"additionalProperties": SHELL},
        "loop": {"$ref": "#/$defs/loop"},
        "odd": {"anyOf": 7, "properties": [], "items": "x", "$ref": "#/nowhere/at/all"},
    },
    "$defs": {
        "command/line": {"allOf": [SHELL]},
        "loop": {"anyOf": [{"$ref": "#/$defs/loop"}, {"$ref": "#"}]},
    },
}
ARGUMENTS = [
    (("command",), True),
    (("workdir",), False),
    (("not_quite",), False),
    (("matched", "run_it"), True),
    (("matched", "else"), True),  # whether the pattern means it is not ours to decide
    (("others", "any"), True),
    (("odd", "x", 1), False),
    (("steps", 0, "run"), True),
    (("steps", 3, "name"), False),
    (("both", 0), True),
    (("both", 1), False),
    (("either",), True),
    (("all_of_it", "deep", 3), True),
    (("loop", "command"), True),
    (("steps",), False),
    ((), False),
]


@rule("RS-44", "RS-16")
@pytest.mark.parametrize("path, expected", ARGUMENTS)
def test_an_argument_is_a_command_where_its_schema_says_so(
    path: tuple[str | int, ...], expected: bool
) -> None:
    assert is_shell(SCHEMA, path) is expected


@rule("RS-44")
def test_without_a_word_of_it_no_argument_is_a_command() -> None:
    plain = {
        "type": "object",
        "properties": {"command": {"type": "string"}, "not_quite": {"x-shell": "true"}},
    }
    assert not is_shell(plain, ("command",))
    assert not is_shell(plain, ("not_quite",))
    assert not is_shell(plain, ("unknown", 1, "x"))
    assert not is_shell({}, ("command",))
