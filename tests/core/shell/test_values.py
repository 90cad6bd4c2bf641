"""Hostile values in every accepted slot, run through the installed shells: no value becomes a command."""

import random
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from easel.core.shell.template import ShellTemplate, compile_template
from easel.core.values.template import Template, parse_template
from easel.errors import BadInput
from tests.core.shell.hostile import (
    EVALUATED,
    OPTIONS,
    PRELUDE,
    SHELLS,
    ShellFolder,
    corpus,
    search_path_with,
    shell_folder,
)
from tests.requirements import case, rule
from tests.support.length import examples

ALL_CONTEXTS, VALUES = corpus()
SHELL_NAMES = [" ".join(shell) for shell in SHELLS]


@pytest.fixture
def folder(tmp_path: Path) -> ShellFolder:
    return shell_folder(tmp_path)


def command(text: str, *, allows_options: bool = True) -> ShellTemplate:
    template = parse_template(text, "command")
    assert isinstance(template, Template)
    return compile_template(template, "command", allows_options=allows_options)


def fill(template: ShellTemplate, *values: str | None, missing_is_empty: bool = False) -> str:
    texts = list(values) if len(values) > 1 else list(values) * len(template.slots)
    return template.fill(texts, "command", missing_is_empty=missing_is_empty)


def chunks(commands: Sequence[str], limit: int = 60_000) -> Iterator[list[str]]:
    """Split the commands so that each chunk fits into one argument."""
    chunk: list[str] = []
    for text in commands:
        if sum(map(len, chunk)) + len(text) > limit:
            yield chunk
            chunk = []
        chunk.append(text)
    yield chunk


def run_all(folder: ShellFolder, shell: Sequence[str], commands: Sequence[str]) -> list[str]:
    """Run the commands and return the arguments that their programs received."""
    return [
        argument
        for chunk in chunks(commands)
        for argument in folder.arguments(shell, PRELUDE + "\n".join(chunk))
    ]


# --- the corpus ---------------------------------------------------------------------------------------------


@rule("RS-16", "CV-27")
@case("X1")
@pytest.mark.parametrize("shell", SHELLS, ids=SHELL_NAMES)
@pytest.mark.parametrize("context", sorted(set(ALL_CONTEXTS) - EVALUATED))
def test_every_value_arrives_as_one_literal_argument(
    context: str, shell: list[str], folder: ShellFolder
) -> None:
    text = ALL_CONTEXTS[context].replace("{{x}}", "{{input.x}}")
    commands = [fill(command(text), value) for value in VALUES]
    arguments = [
        argument for chunk in chunks(commands) for argument in folder.arguments(shell, "\n".join(chunk))
    ]
    assert arguments == [f"v-{value}-z" if context == "mid_word" else value for value in VALUES]
    assert not folder.is_breached


@rule("RS-16")
@case("X1")
@pytest.mark.parametrize("context", sorted(set(ALL_CONTEXTS) & EVALUATED))
def test_template_that_the_shell_evaluates_again_is_refused(context: str) -> None:
    with pytest.raises(BadInput, match="command: "):
        command(ALL_CONTEXTS[context].replace("{{x}}", "{{input.x}}"))


@rule("RS-16")
@case("X2")
@pytest.mark.parametrize("value", OPTIONS)
@pytest.mark.parametrize("context", ["unquoted", "double", "single", "assignment"])
def test_option_value_is_refused_unless_the_action_allows_it(context: str, value: str) -> None:
    text = ALL_CONTEXTS[context].replace("{{x}}", "{{input.x}}")
    with pytest.raises(BadInput, match="allowOptions"):
        fill(command(text, allows_options=False), value)
    assert value in fill(command(text), value)


# --- more slots ---------------------------------------------------------------------------------------------

ACCEPTED = [
    # a template, and the arguments that its programs receive for each value
    ("show {{state.x}}", ["{}"]),
    ("show a{{state.x}} {{state.x}}b", ["a{}", "{}b"]),
    ("show {{state.x}}{{state.x}}", ["{}{}"]),
    ("show \"{{state.x}}\"'{{state.x}}'{{state.x}}", ["{}{}{}"]),
    ("show \"a {{state.x}} b\" 'c {{state.x}} d'", ["a {} b", "c {} d"]),
    ('show "\\"{{state.x}}\\"" "\\\\{{state.x}}" "\\${{state.x}}" "a\\b{{state.x}}"',
     ['"{}"', "\\{}", "${}", "a\\b{}"]),
    ("show \\\"{{state.x}}\\' \\\\{{state.x}} \\${{state.x}} '\\{{state.x}}' '${{state.x}}'",
     ["\"{}'", "\\{}", "${}", "\\{}", "${}"]),
    ('show $HOME{{state.x}} "$HOME{{state.x}}" ${HOME}{{state.x}} "${HOME}{{state.x}}"', ["/no/home{}"] * 4),
    ('show $HOME/{{state.x}} "$HOME/{{state.x}}/$HOME"', ["/no/home/{}", "/no/home/{}//no/home"]),
    ('show "$#{{state.x}}" "$?{{state.x}}"', ["0{}", "0{}"]),
    ("show --name={{state.x}} -n{{state.x}} a:{{state.x}}:b a,{{state.x}} {{state.x}}=1",
     ["--name={}", "-n{}", "a:{}:b", "a,{}", "{}=1"]),
    ("show {{state.x}}>/dev/stdout", ["{}"]),
    ("show {{state.x}}2>/dev/stdout 2>&1", ["{}2"]),
    ("show {{state.x}} <<EOF\nit's\nEOF\nshow {{state.x}}", ["{}", "{}"]),
    ("show {{state.x}} # it's\nshow {{state.x}}", ["{}", "{}"]),
    ("show \\\n  {{state.x}} \\\n  end", ["{}", "end"]),
    ("show {{state.x}}; show {{state.x}} && show {{state.x}} || show no\nshow {{state.x}}&\nwait",
     ["{}"] * 4),
    ("(show {{state.x}}); { show {{state.x}}; }; if show {{state.x}}; then show {{state.x}}; fi", ["{}"] * 4),
    ("for f in {{state.x}} \"{{state.x}}\"; do show \"$f\" \"${f}\"; done", ["{}"] * 4),
    ("case {{state.x}} in {{state.x}}) show same;; *) show other;; esac", ["same"]),
    ("case a{{state.x}} in a{{state.x}}|b) show same;; esac", ["same"]),
    ("if [ {{state.x}} = \"{{state.x}}\" ]; then show same; fi", ["same"]),
    ("V={{state.x}} W='{{state.x}}'; X=\"$V$W\"; show \"$X\" \"${V}\"", ["{}{}", "{}"]),
    ("V=a{{state.x}}:~/b; show \"$V\"", ["a{}:/no/home/b"]),
    ("export V={{state.x}}; sh ./deploy \"$V\"", ["{}"]),
    ("V={{state.x}} env ./deploy {{state.x}}", ["{}"]),
    ("env V={{state.x}} ./deploy {{state.x}}; timeout 9 nice -n 1 ./deploy {{state.x}}", ["{}", "{}"]),
    ("show `printf a` $(printf '%s' \")\") \"$(printf '%s' '\"')\" $((1 + 2)) {{state.x}}",
     ["a", ")", '"', "3", "{}"]),
    ("show ${UNSET:-none} ${HOME%/*} {{state.x}}", ["none", "/no", "{}"]),
    ("show {{state.x}} | cat", ["{}"]),
    ("printf '%s\\0' {{state.x}}", ["{}"]),
    ("show x{{state.x}}* x{{state.x}}?", ["x{}*", "x{}?"]),
]  # fmt: skip
# A pattern that matches no file is passed on as it is; these values would change what it matches.
NOT_IN_PATTERNS = ("\\", "/")


@rule("RS-16", "CV-27")
@case("X1")
@pytest.mark.parametrize("shell", SHELLS, ids=SHELL_NAMES)
@pytest.mark.parametrize("text, expected", ACCEPTED, ids=[text for text, _ in ACCEPTED])
def test_value_arrives_unchanged_in_every_slot(
    text: str, expected: list[str], shell: list[str], folder: ShellFolder
) -> None:
    values = [
        value for value in VALUES if "*" not in text or not any(sign in value for sign in NOT_IN_PATTERNS)
    ]
    if "[ " in text:  # an option would be an operator of `[`
        values = [value for value in values if not value.startswith("-")]
    template = command(text)
    if "./deploy" in text:  # starts a process for each value, so every third is enough
        values = values[::3]
    arguments = run_all(folder, shell, [fill(template, value) for value in values])
    assert arguments == [argument.replace("{}", value) for value in values for argument in expected]
    assert not folder.is_breached


@rule("RS-16")
@pytest.mark.parametrize("shell", SHELLS, ids=SHELL_NAMES)
def test_value_can_be_a_file_name(shell: list[str], folder: ShellFolder) -> None:
    names = [value for value in VALUES if value and "/" not in value and len(value.encode()) < 200]
    template = command("show {{input.x}} > f-{{input.x}}; cat < f-{{input.x}}")
    assert run_all(folder, shell, [fill(template, name) for name in names]) == names
    assert {path.name for path in folder.path.iterdir()} == {"deploy", *(f"f-{name}" for name in names)}


# --- random commands ----------------------------------------------------------------------------------------

PIECES = [
    "{{state.x}}", "{{state.x}}", "{{state.x}}", "{{state.x}}", "show ", "show ", "\nshow ", ";show ", " ",
    " ", "'", "'", '"', '"', "\\", "$", "`", "$HOME", "${HOME}", "$V", '"$V"', "V=", ";V=", "a", "1", "2",
    "-", "=", "~", "#", " #", ";", "\n", "&&", "|", "*", "?", "[", "]", "{", "}", ",", "!", "(", ")", "<",
    ">", "2>", ">&", "$(", "$((", "))", "${", "$'", '$"', "<<EOF", "<<'EOF'", "\nEOF\n", "<<<", "@", ".",
    ":", "%", "^", "+", "\\\n", "\t", "if ", "then ", "fi", "case ", " in ", "esac", ";;", "for f in ",
    " do ", "done", "é", "\\'", '\\"', "\\$", "\\`",
]  # fmt: skip
HOSTILE_PIECES = [
    "'", '"', "\\", "$", "`", "$(touch PWN)", "`touch PWN`", ";touch PWN;", "\ntouch PWN\n", "|touch PWN|",
    "(", ")", "{", "}", "#", " ", "\n", "EOF\n", ">", "<", "*", "~", "!", "&", "a", "1", "x", "=", ",",
]  # fmt: skip
some_pieces = st.lists(st.sampled_from(PIECES), max_size=8).map("".join)
random_commands = st.tuples(
    st.sampled_from(["show ", ""]), some_pieces, st.just("{{state.x}}"), some_pieces
).map("".join)


@st.composite
def altered_commands(draw: st.DrawFn) -> str:
    """Draw an accepted command with random insertions and deletions."""
    text = draw(
        st.sampled_from([text for text, _ in ACCEPTED if "deploy" not in text and "/dev" not in text])
    )
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(text)))
        text = text[:at] + draw(st.sampled_from(PIECES)) + text[at + draw(st.integers(0, 3)) :]
    return text


hostile_values = st.one_of(
    st.lists(st.sampled_from(HOSTILE_PIECES), max_size=6).map("".join),
    st.sampled_from(VALUES),
    st.text(max_size=8),
)
PLAIN = "Qplain7Q"


@rule("RS-16", "CV-27")
@case("X1")
@given(text=st.one_of(random_commands, altered_commands()), value=hostile_values)
@settings(
    max_examples=examples(120),
    suppress_health_check=[
        HealthCheck.filter_too_much,
        HealthCheck.function_scoped_fixture,
        HealthCheck.too_slow,
    ],
)
def test_hostile_value_has_the_same_effect_as_a_plain_one(text: str, value: str, tmp_path: Path) -> None:
    template = parse_template(text, "command")
    # A process id, and the order of background processes, differ between two runs.
    assume("$$" not in text and "&" not in text.replace("&&", ""))
    assume(isinstance(template, Template) and "/" not in value and "\0" not in value)
    assert isinstance(template, Template)
    try:
        accepted = compile_template(template, "command", allows_options=True)
    except BadInput:
        return
    assume(">" not in text or value not in {"", ".", ".."})  # not a file name
    # A cut word could be the name of a program whose output differs between two runs.
    path = search_path_with(tmp_path / "bin", "touch", "cat")
    for shell in SHELLS[:2]:
        outputs: list[str] = []
        for filled in (fill(accepted, PLAIN), fill(accepted, value)):
            folder = ShellFolder(Path(tempfile.mkdtemp(dir=tmp_path)))
            outputs.append(folder.run(shell, PRELUDE + filled, path=path).decode())
            assert not folder.is_breached, filled
        assert outputs[1] == outputs[0].replace(PLAIN, value), (shell, fill(accepted, value))


@rule("RS-16")
@given(st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\0"), max_size=40))
@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_arrives_unchanged(tmp_path: Path, value: str) -> None:
    template = command('show {{input.x}} "{{input.x}}" \'{{input.x}}\' "a{{input.x}}$HOME"')
    folder = shell_folder(tmp_path)
    for shell in SHELLS[:2]:
        arguments = folder.run(shell, PRELUDE + fill(template, value))
        expected = [value, value, value, f"a{value}/no/home"]
        assert arguments == "".join(f"{argument}\0" for argument in expected).encode()


@rule("RS-16")
@pytest.mark.parametrize("value", ["a\0b", "\0", "half \ud83d of a pair"])
def test_value_that_a_command_cannot_contain_is_refused(value: str) -> None:
    with pytest.raises(BadInput, match=r"command: the value of {{input\.x}} contains a character"):
        fill(command("show '{{input.x}}'"), value)


@rule("RS-57")
def test_missing_value_is_refused_unless_the_action_allows_it() -> None:
    template = command('rm -r build/{{state.x}} "{{state.x}}" {{state.x}}')
    with pytest.raises(BadInput, match=r"command: {{state\.x}} has no value"):
        fill(template, None)
    assert fill(template, None, missing_is_empty=True) == "rm -r build/'' \"\" ''"


@rule("RS-16")
def test_plain_names_stay_unquoted_for_readability() -> None:
    assert fill(command("journalctl -u {{state.service}} -n 80"), "api") == "journalctl -u api -n 80"
    assert (
        fill(command('./deploy "{{state.a}} {{state.b}}"'), "my service", "1.2.7")
        == './deploy "my service 1.2.7"'
    )
    assert fill(command("./deploy {{state.a}}"), "my service") == "./deploy 'my service'"


def test_plain_name_beside_a_special_character_is_quoted() -> None:
    assert fill(command("show *{{state.a}} !{{state.a}} ^{{state.a}} {{state.a}}# {{state.a}}>f"), "api") == (
        "show *'api' !'api' ^'api' 'api'# 'api'>f"
    )


def test_long_command_is_parsed_quickly() -> None:
    chance = random.Random(4)
    for _ in range(examples(50)):
        text = "".join(chance.choice(PIECES) for _ in range(3_000))[:19_000] + "{{state.x}}"
        try:
            command(text)
        except BadInput:
            continue
