"""No value becomes a command: every hostile value, in every place that is accepted, through the real shells of this machine."""

import random
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from easel.core.shell.template import ShellTemplate, compile_template
from easel.core.values.template import Template, parsed
from easel.errors import BadInput
from tests.core.shell.hostile import EVALUATED, OPTIONS, PRELUDE, SHELLS, Place, corpus, only, prepared
from tests.requirements import case, rule

ALL_CONTEXTS, VALUES = corpus()
SHELL_NAMES = [" ".join(shell) for shell in SHELLS]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return prepared(tmp_path)


def command(text: str, *, allows_options: bool = True) -> ShellTemplate:
    template = parsed(text, "command")
    assert isinstance(template, Template)
    return compile_template(template, "command", allows_options=allows_options)


def filled(template: ShellTemplate, *values: str | None, missing_is_empty: bool = False) -> str:
    texts = list(values) if len(values) > 1 else list(values) * len(template.places)
    return template.filled(texts, "command", missing_is_empty=missing_is_empty)


def chunks(commands: Sequence[str], most: int = 60_000) -> Iterator[list[str]]:
    """As many commands as one argument can hold."""
    chunk: list[str] = []
    for one in commands:
        if sum(map(len, chunk)) + len(one) > most:
            yield chunk
            chunk = []
        chunk.append(one)
    yield chunk


# --- the corpus ---------------------------------------------------------------------------------------------------------


@rule("RS-16", "CV-27")
@case("X1")
@pytest.mark.parametrize("shell", SHELLS, ids=SHELL_NAMES)
@pytest.mark.parametrize("context", sorted(set(ALL_CONTEXTS) - EVALUATED))
def test_every_value_arrives_as_one_literal_argument(context: str, shell: list[str], place: Place) -> None:
    text = ALL_CONTEXTS[context].replace("{{x}}", "{{input.x}}")
    commands = [filled(command(text), value) for value in VALUES]
    shown = [argument for chunk in chunks(commands) for argument in place.shown(shell, "\n".join(chunk))]
    assert shown == [f"v-{value}-z" if context == "mid_word" else value for value in VALUES]
    assert not place.is_breached


@rule("RS-16")
@case("X1")
@pytest.mark.parametrize("context", sorted(set(ALL_CONTEXTS) & EVALUATED))
def test_a_place_that_the_shell_evaluates_again_makes_the_spec_invalid(context: str) -> None:
    with pytest.raises(BadInput, match="command: "):
        command(ALL_CONTEXTS[context].replace("{{x}}", "{{input.x}}"))


@rule("RS-16")
@case("X2")
@pytest.mark.parametrize("value", OPTIONS)
@pytest.mark.parametrize("context", ["unquoted", "double", "single", "assignment"])
def test_a_value_that_could_be_an_option_is_refused_unless_the_action_allows_it(
    context: str, value: str
) -> None:
    text = ALL_CONTEXTS[context].replace("{{x}}", "{{input.x}}")
    with pytest.raises(BadInput, match="allowOptions"):
        filled(command(text, allows_options=False), value)
    assert value in filled(command(text), value)


# --- more places --------------------------------------------------------------------------------------------------------

PLACES = [
    # a template, and what its programs are to receive for each value
    ("show {{state.x}}", ["{}"]),
    ("show a{{state.x}} {{state.x}}b", ["a{}", "{}b"]),
    ("show {{state.x}}{{state.x}}", ["{}{}"]),
    ("show \"{{state.x}}\"'{{state.x}}'{{state.x}}", ["{}{}{}"]),
    ("show \"a {{state.x}} b\" 'c {{state.x}} d'", ["a {} b", "c {} d"]),
    ('show "\\"{{state.x}}\\"" "\\\\{{state.x}}" "\\${{state.x}}" "a\\b{{state.x}}"', ['"{}"', "\\{}", "${}", "a\\b{}"]),
    ("show \\\"{{state.x}}\\' \\\\{{state.x}} \\${{state.x}} '\\{{state.x}}' '${{state.x}}'", ["\"{}'", "\\{}", "${}", "\\{}", "${}"]),
    ('show $HOME{{state.x}} "$HOME{{state.x}}" ${HOME}{{state.x}} "${HOME}{{state.x}}"', ["/no/home{}"] * 4),
    ('show $HOME/{{state.x}} "$HOME/{{state.x}}/$HOME"', ["/no/home/{}", "/no/home/{}//no/home"]),
    ('show "$#{{state.x}}" "$?{{state.x}}"', ["0{}", "0{}"]),
    ("show --name={{state.x}} -n{{state.x}} a:{{state.x}}:b a,{{state.x}} {{state.x}}=1", ["--name={}", "-n{}", "a:{}:b", "a,{}", "{}=1"]),
    ("show {{state.x}}>/dev/stdout", ["{}"]),
    ("show {{state.x}}2>/dev/stdout 2>&1", ["{}2"]),
    ("show {{state.x}} <<EOF\nit's\nEOF\nshow {{state.x}}", ["{}", "{}"]),
    ("show {{state.x}} # it's\nshow {{state.x}}", ["{}", "{}"]),
    ("show \\\n  {{state.x}} \\\n  end", ["{}", "end"]),
    ("show {{state.x}}; show {{state.x}} && show {{state.x}} || show no\nshow {{state.x}}&\nwait", ["{}"] * 4),
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
    ("show `printf a` $(printf '%s' \")\") \"$(printf '%s' '\"')\" $((1 + 2)) {{state.x}}", ["a", ")", '"', "3", "{}"]),
    ("show ${UNSET:-none} ${HOME%/*} {{state.x}}", ["none", "/no", "{}"]),
    ("show {{state.x}} | cat", ["{}"]),
    ("printf '%s\\0' {{state.x}}", ["{}"]),
    ("show x{{state.x}}* x{{state.x}}?", ["x{}*", "x{}?"]),
]  # fmt: skip
# A pattern that matches no file stays as it is; with these it would match what its own backslash hides.
NOT_IN_PATTERNS = ("\\", "/")


@rule("RS-16", "CV-27")
@case("X1")
@pytest.mark.parametrize("shell", SHELLS, ids=SHELL_NAMES)
@pytest.mark.parametrize("text, expected", PLACES, ids=[text for text, _ in PLACES])
def test_in_every_place_the_value_stays_what_it_is(
    text: str, expected: list[str], shell: list[str], place: Place
) -> None:
    values = [
        value for value in VALUES if "*" not in text or not any(sign in value for sign in NOT_IN_PATTERNS)
    ]
    if "[ " in text:
        values = [
            value for value in values if not value.startswith("-")
        ]  # a sign to `[`, which the refusal of options keeps away
    template = command(text)
    commands = [filled(template, value) for value in values]
    shown = [
        argument for chunk in chunks(commands) for argument in place.shown(shell, PRELUDE + "\n".join(chunk))
    ]
    assert shown == [one.replace("{}", value) for value in values for one in expected]
    assert not place.is_breached


@rule("RS-16")
@pytest.mark.parametrize("shell", SHELLS, ids=SHELL_NAMES)
def test_a_value_may_name_a_file(shell: list[str], place: Place) -> None:
    names = [value for value in VALUES if value and "/" not in value and len(value.encode()) < 200]
    template = command("show {{input.x}} > f-{{input.x}}; cat < f-{{input.x}}")
    shown = [argument for name in names for argument in place.shown(shell, PRELUDE + filled(template, name))]
    assert shown == names
    assert {path.name for path in place.folder.iterdir()} == {"deploy", *(f"f-{name}" for name in names)}


# --- chance -------------------------------------------------------------------------------------------------------------

PIECES = [
    "{{state.x}}", "{{state.x}}", "{{state.x}}", "{{state.x}}", "show ", "show ", "\nshow ", ";show ", " ", " ", "'", "'", '"', '"', "\\", "$", "`", "$HOME", "${HOME}", "$V", '"$V"',
    "V=", ";V=", "a", "1", "2", "-", "=", "~", "#", " #", ";", "\n", "&&", "|", "*", "?", "[", "]", "{", "}", ",", "!", "(", ")", "<", ">", "2>", ">&", "$(", "$((", "))", "${", "$'", '$"',
    "<<EOF", "<<'EOF'", "\nEOF\n", "<<<", "@", ".", ":", "%", "^", "+", "\\\n", "\t", "if ", "then ", "fi", "case ", " in ", "esac", ";;", "for f in ", " do ", "done", "é", "\\'", '\\"', "\\$", "\\`",
]  # fmt: skip
HOSTILE_PIECES = ["'", '"', "\\", "$", "`", "$(touch PWN)", "`touch PWN`", ";touch PWN;", "\ntouch PWN\n", "|touch PWN|", "(", ")", "{", "}", "#", " ", "\n", "EOF\n", ">", "<", "*", "~", "!", "&", "a", "1", "x", "=", ","]  # fmt: skip
some_pieces = st.lists(st.sampled_from(PIECES), max_size=8).map("".join)
made_up = st.tuples(st.sampled_from(["show ", ""]), some_pieces, st.just("{{state.x}}"), some_pieces).map(
    "".join
)


@st.composite
def altered(draw: st.DrawFn) -> str:
    """A command that is good, until something is put into it or taken out of it."""
    text = draw(st.sampled_from([text for text, _ in PLACES if "deploy" not in text and "/dev" not in text]))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(text)))
        text = text[:at] + draw(st.sampled_from(PIECES)) + text[at + draw(st.integers(0, 3)) :]
    return text


hostile = st.one_of(
    st.lists(st.sampled_from(HOSTILE_PIECES), max_size=6).map("".join),
    st.sampled_from(VALUES),
    st.text(max_size=8),
)
PLAIN = "Qplain7Q"


@rule("RS-16", "CV-27")
@case("X1")
@given(text=st.one_of(made_up, altered()), value=hostile)
@settings(
    max_examples=300,
    suppress_health_check=[
        HealthCheck.filter_too_much,
        HealthCheck.function_scoped_fixture,
        HealthCheck.too_slow,
    ],
)
def test_whatever_the_template_a_hostile_value_does_what_a_plain_one_does(
    text: str, value: str, tmp_path: Path
) -> None:
    """Where a plain name arrives, the hostile value arrives, and nothing else changes: in any command that we accept."""
    template = parsed(text, "command")
    assume(
        "$$" not in text and "&" not in text.replace("&&", "")
    )  # a process number, or who is first, differs by chance
    assume(isinstance(template, Template) and "/" not in value and "\0" not in value)
    assert isinstance(template, Template)
    try:
        accepted = compile_template(template, "command", allows_options=True)
    except BadInput:
        return
    assume(">" not in text or value not in {"", ".", ".."})  # no file can be called that
    path = only(
        tmp_path / "bin", "touch", "cat"
    )  # a cut word could be the name of a program whose output differs by chance
    for shell in SHELLS[:2]:
        outputs: list[str] = []
        for one in (PLAIN, value):
            place = Place(Path(tempfile.mkdtemp(dir=tmp_path)))
            outputs.append(place.run(shell, PRELUDE + filled(accepted, one), path=path).decode())
            assert not place.is_breached, filled(accepted, one)
        assert outputs[1] == outputs[0].replace(PLAIN, value), (shell, filled(accepted, value))


@rule("RS-16")
@given(st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\0"), max_size=40))
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_at_all_arrives_whole(tmp_path: Path, value: str) -> None:
    template = command('show {{input.x}} "{{input.x}}" \'{{input.x}}\' "a{{input.x}}$HOME"')
    place = prepared(tmp_path)
    for shell in SHELLS[:2]:
        shown = place.run(shell, PRELUDE + filled(template, value))
        assert shown == "".join(f"{one}\0" for one in (value, value, value, f"a{value}/no/home")).encode()


@rule("RS-16")
@pytest.mark.parametrize("value", ["a\0b", "\0", "half \ud83d of a pair"])
def test_what_no_command_can_hold_is_refused(value: str) -> None:
    with pytest.raises(BadInput, match=r"command: the value of {{input\.x}} has a character"):
        filled(command("show '{{input.x}}'"), value)


@rule("RS-57")
def test_a_missing_value_fails_unless_the_action_says_otherwise() -> None:
    template = command('rm -r build/{{state.x}} "{{state.x}}" {{state.x}}')
    with pytest.raises(BadInput, match=r"command: {{state\.x}} has no value"):
        filled(template, None)
    assert filled(template, None, missing_is_empty=True) == "rm -r build/'' \"\" ''"


@rule("RS-16")
def test_plain_names_stay_bare_so_that_a_person_can_read_the_command() -> None:
    assert filled(command("journalctl -u {{state.service}} -n 80"), "api") == "journalctl -u api -n 80"
    assert (
        filled(command('./deploy "{{state.a}} {{state.b}}"'), "my service", "1.2.7")
        == './deploy "my service 1.2.7"'
    )
    assert filled(command("./deploy {{state.a}}"), "my service") == "./deploy 'my service'"


def test_beside_a_sign_that_some_shell_knows_even_a_plain_name_is_quoted() -> None:
    assert filled(
        command("show *{{state.a}} !{{state.a}} ^{{state.a}} {{state.a}}# {{state.a}}>f"), "api"
    ) == ("show *'api' !'api' ^'api' 'api'# 'api'>f")


def test_a_long_command_is_read_quickly() -> None:
    """Hostile templates cost no more than their length."""
    chance = random.Random(4)
    for _ in range(50):
        text = "".join(chance.choice(PIECES) for _ in range(3_000))[:19_000] + "{{state.x}}"
        try:
            command(text)
        except BadInput:
            continue
