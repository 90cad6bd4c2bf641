"""Slots that a shell template accepts and refuses."""

import pytest

from easel.core.shell import template as shell
from easel.core.shell.template import MAX_COMMAND_LENGTH, compile_template
from easel.core.values.template import Template, parse_template
from easel.errors import BadInput
from tests.core.stream.costs import least_seconds
from tests.requirements import case, rule


def template(text: str) -> Template:
    parsed = parse_template(text, "command")
    assert isinstance(parsed, Template)
    return parsed


REFUSED = [
    # template, and a part of the message
    ("show $(echo {{state.x}})",                                    "{{state.x}} must not be in $(…)"),
    ('show "$(echo \'{{state.x}}\')"',                              "must not be in $(…)"),
    ("show $(echo $(echo {{state.x}}))",                            "must not be in $(…)"),
    ("show `echo {{state.x}}`",                                     "in backticks"),
    ('show "`echo {{state.x}}`"',                                   "in backticks"),
    ("show $((1 + {{state.x}}))",                                   "in arithmetic"),
    ("show $[1 + {{state.x}}]",                                     "$[ is not supported"),
    ("((a = {{state.x}}))",                                         "((…)) is not supported"),
    ("let a={{state.x}}",                                           "`let`, which evaluates"),
    ("a[{{state.x}}]=1",                                            "unquoted ["),
    ("show ${V:-{{state.x}}}",                                      "in ${…}"),
    ('show "${V:-{{state.x}}}"',                                    "in ${…}"),
    ("cat <<EOF\n{{state.x}}\nEOF",                                 "in a here-document"),
    ("cat <<'EOF'\n{{state.x}}\nEOF",                               "in a here-document"),
    ("cat <<-EOF\n\t{{state.x}}\n\tEOF",                            "in a here-document"),
    ("cat <<EOF {{state.x}}\nEOF",                                  "after <<"),
    ("cat <<{{state.x}}\nEOF",                                      "plain word, such as EOF"),
    ("show $(cat <<EOF\nEOF\n) {{state.x}}",                        "here-document inside $(…)"),
    ("cat {{state.x}} <<EOF\nEO",                                   "no line EOF"),
    ("show a # for {{state.x}}",                                    "in a comment"),
    ("diff <(echo {{state.x}}) f",                                  "process substitution"),
    ("eval ls {{state.x}}",                                         "`eval`, which evaluates"),
    ("sh -c 'ls {{state.x}}'",                                      "`sh`, which evaluates"),
    ("sh -c 'ls \"$1\"' sh {{state.x}}",                            "`sh`, which evaluates"),
    ("/usr/bin/bash -lc \"ls {{state.x}}\"",                        "`bash`, which evaluates"),
    ("b'a'\"s\"\\h -c {{state.x}}",                                 "`bash`, which evaluates"),
    ("env A=1 bash -c {{state.x}}",                                 "`bash`, which evaluates"),
    ("sudo -u root sh -c {{state.x}}",                              "`sh`, which evaluates"),
    ("docker exec web sh -c 'ls {{state.x}}'",                      "`sh`, which evaluates"),
    ("sh <<< {{state.x}}",                                          "`sh`, which evaluates"),
    ("echo {{state.x}} | sh",                                       "must not follow a pipe"),
    ("echo {{state.x}} | cat | sudo -n bash",                       "must not follow a pipe"),
    ("echo {{state.x}} | { cat; sh; }",                             "must not follow a pipe"),
    ("echo {{state.x}} | sudo -s",                                  "must not follow a pipe"),
    ("echo {{state.x}} | xargs rm",                                 "must not follow a pipe"),
    ("echo {{state.x}} | eval \"$(cat)\"",                          "must not follow a pipe"),
    ("python3.11 -c 'print(\"{{state.x}}\")'",                      "`python`, which evaluates"),
    ("perl -e 'print {{state.x}}'",                                 "`perl`, which evaluates"),
    ("awk '/{{state.x}}/' f",                                       "`awk`, which evaluates"),
    ("sed -n {{state.x}}p f",                                       "`sed`, which evaluates"),
    ("make V={{state.x}}",                                          "`make`, which evaluates"),
    ("ssh host ls {{state.x}}",                                     "`ssh`, which evaluates"),
    ("trap 'rm {{state.x}}' EXIT",                                  "`trap`, which evaluates"),
    (". {{state.x}}",                                               "`.`, which evaluates"),
    ("find . -exec {{state.x}} ;",                                  "after -exec"),
    ("printf \"{{state.x}}\"",                                      "the format or a variable of `printf`"),
    ("printf -v V '%s' {{state.x}}",                                "the format or a variable of `printf`"),
    ("[ {{state.x}} -eq 1 ]",                                       "an operand of -eq"),
    ("export {{state.x}}=1",                                        "a variable name for `export`"),
    ("read {{state.x}}",                                            "`read`, which evaluates"),
    ("unset {{state.x}}",                                           "`unset`, which evaluates"),
    ("{{state.x}} a",                                               "where a command's name belongs"),
    ("./{{state.x}}/run",                                           "where a command's name belongs"),
    ("\"{{state.x}}\" a",                                           "where a command's name belongs"),
    ("cd /srv && {{state.x}}",                                      "where a command's name belongs"),
    ("if {{state.x}}; then ls; fi",                                 "where a command's name belongs"),
    ("A=1 {{state.x}}",                                             "where a command's name belongs"),
    ("> log {{state.x}}",                                           "where a command's name belongs"),
    ("sudo -u {{state.u}} {{state.x}}",                             "{{state.x}} must not be where"),
    ("timeout -k 5 5 {{state.x}}",                                  "where a command's name belongs"),
    ("sudo --weird ls {{state.x}}",                                 "option of `sudo`"),
    ("$CMD {{state.x}}",                                            "write the program's name out"),
    ("PATH={{state.x}} ls",                                         "in the variable PATH"),
    ("env LD_PRELOAD={{state.x}} ls",                               "in the variable LD_PRELOAD"),
    ("RANDOM={{state.x}}",                                          "in the variable RANDOM"),
    ("for IFS in {{state.x}}; do ls; done",                         "in the variable IFS"),
    ("show {a,{{state.x}}}",                                        "unquoted {"),
    ("ls [{{state.x}}]*",                                           "unquoted ["),
    ("ls ~{{state.x}}",                                             "right after ~"),
    ("V=a:~{{state.x}}",                                            "right after ~"),
    ("show ${{state.x}}",                                           "right after a $"),
    ('show "${{state.x}}"',                                         "right after a $"),
    ("show $'{{state.x}}'",                                         "$' is not supported"),
    ('show $"{{state.x}}"',                                         '$" is not supported'),
    ("show \\{{state.x}}",                                          "right after a backslash"),
    ('show "\\{{state.x}}"',                                        "right after a backslash"),
    ("show a\\\n{{state.x}}",                                       "continued inside a word"),
    ("show $\\\n{{state.x}}",                                       "not supported"),
    ('show "$\\\n{{state.x}}"',                                     "not supported"),
    ("show a >&{{state.x}}",                                        "file descriptor"),
    ("show '{{state.x}}",                                           "' is not closed"),
    ('show "{{state.x}}',                                           '" is not closed'),
    ("(show {{state.x}}",                                           "not closed"),
    ("f() { eval \"$1\"; }; f {{state.x}}",                         "a function"),
    ("function f { ls; }; f {{state.x}}",                           "`function` is not supported"),
    ("a=({{state.x}})",                                             "an array"),
    ("[[ {{state.x}} == a ]]",                                      "`[[` is not supported"),
    ("alias a=b; a {{state.x}}",                                    "`alias` changes"),
    ("ls !({{state.x}})",                                           "a pattern"),
    ("show $(case a in a) ls;; esac) {{state.x}}",                  "`case` inside $(…)"),
    ("show $(ls # it's\n) {{state.x}}",                             "comment inside $(…)"),
    ("show `echo '`'` {{state.x}}",                                 "backticks with quotes"),
    ("show ${V@P} {{state.x}}",                                     "${V@P} is not supported"),
    ("show ${!V} {{state.x}}",                                      "${!V} is not supported"),
    ("cat {{state.x}} <<EOF\n$(ls)\nEOF",                           "quote its end"),
    ("show {{state.x}}\r\n",                                        "control characters"),
    ("show \0 {{state.x}}",                                         "control characters"),
    ("show -{{state.x}}",                                           "is the name of an option"),
    ("show --{{state.x}}",                                          "is the name of an option"),
    # tainted variables
    ("V={{state.x}}; show $V",                                      '$V may contain the value'),
    ("V={{state.x}}; show \"$(echo \"$V\")\"",                      '$V may contain the value'),
    ("V={{state.x}}; show $((V + 1))",                              '$V may contain the value'),
    ("V={{state.x}}; cat <<EOF\n$V\nEOF",                           '$V may contain the value'),
    ("V={{state.x}}; show `echo $V`",                               '$V may contain the value'),
    ("V={{state.x}}; show \"${V%a}\"",                              '$V may contain the value'),
    ("V={{state.x}}; eval \"$V\"",                                  "$V, which may contain"),
    ("V={{state.x}}; trap 'echo $V' EXIT",                          "`trap` evaluates a text"),
    ("V={{state.x}}; \"$V\" a",                                     "$V, which may contain"),
    ("V={{state.x}}; W=\"$V\"; X=\"a$W\"; sh -c \"$X\"",            "$X, which may contain"),
    ("while ls $W; do W=\"$V\"; V={{state.x}}; done",               '$W may contain the value'),
    ("for f in a {{state.x}}; do show $f; done",                    '$f may contain the value'),
    ("export V={{state.x}}; eval \"$V\"",                           "$V, which may contain"),
    ("echo {{state.x}} | while read -r l; do eval \"$l\"; done",    "$l, which may contain"),
    ("echo {{state.x}} | { read; eval \"$REPLY\"; }",               "$REPLY, which may contain"),
    ("show {{state.x}}; eval $_",                                   "$_ may contain the value"),
    ("V={{state.x}}; PATH=\"$V\" ls",                               "in the variable PATH"),
]  # fmt: skip


@rule("RS-16")
@case("X1")
@pytest.mark.parametrize("text, because", REFUSED)
def test_template_with_an_unsafe_slot_is_refused(text: str, because: str) -> None:
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
    "python3 tool.py {{state.x}}; python3 -m tool {{state.x}}; bash ./x.sh {{state.x}}",
    "node x.js {{state.x}}",
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
def test_common_commands_are_accepted(text: str) -> None:
    compile_template(template(text), "command")


@rule("RS-16")
def test_option_values_are_allowed_by_the_action() -> None:
    assert (
        compile_template(template("head -{{state.n}} f"), "c", allows_options=True).fill(
            ["5"], "c", missing_is_empty=False
        )
        == "head -5 f"
    )


@rule("RS-16")
@case("X2")
def test_adjacent_values_cannot_form_an_option() -> None:
    command = compile_template(template('show {{state.a}}"{{state.b}}"$HOME{{state.c}}'), "c")
    with pytest.raises(BadInput, match=r"the value of {{state\.b}} begins with -"):
        command.fill(["", "-rf", "x"], "c", missing_is_empty=False)
    with pytest.raises(BadInput, match=r"the value of {{state\.c}} begins with -"):
        command.fill(["", "", "-rf"], "c", missing_is_empty=False)
    command.fill(["a", "-rf", "-x"], "c", missing_is_empty=False)
    with pytest.raises(BadInput, match="a file of arguments"):
        compile_template(template("curl --data={{state.a}}"), "c").fill(
            ["@/etc/passwd"], "c", missing_is_empty=False
        )


def test_hostile_template_is_refused_quickly() -> None:
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
        shell._compile.cache_clear()  # pyright: ignore[reportPrivateUsage]
        for text in (*signs, *chain, *nested, *long, *many):
            try:
                compile_template(template(text), "c")
            except BadInput:
                continue

    assert least_seconds(refuse, enough=2) < 2
