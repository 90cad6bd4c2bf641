"""The checks of a script by the page of rules: no value names a program, or is a part of code. RS-71

A variable that is assigned a value, and a substitution with one, count as that value. Does not know templates
or tools.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice, pairwise

from easel.core.shell import rules
from easel.core.shell.calls import (
    Piece,
    ProgramCall,
    find_code,
    find_started,
    is_named,
    letters_of,
    program_name,
)
from easel.core.shell.code import check_quotes
from easel.core.shell.lexer import INPUTS, MAX_NESTING, NAME, OPAQUE, OUTPUTS, SLOT, read_script
from easel.core.shell.words import Expansion, ShellScript, Slot, SyntaxNode, Word, refuse, refuse_slot

MAX_WORDS = 20_000  # of all programs that a command may start
MAX_STARTED = 20  # readings of the options of one launcher
_ASSIGNMENT = re.compile(rf"(?:--[a-z-]+=|-[eEp])?({NAME})\+?=")
_ANY_VALUE = re.compile(
    r"[0-9]+|[@*_]|REPLY|MAPFILE|OPTARG|(?:BASH|EASEL)_\w+"
)  # variables that may hold any value
_RUNS = "its value would choose what runs"


class Checker:
    """Checks the slots of a script. `check` raises `BadInput` for the first in a forbidden place."""

    def __init__(
        self, script: ShellScript, slots: list[Slot], texts: Collection[Slot], options: Collection[Slot]
    ) -> None:
        self._script = script
        self._slots = slots
        self._texts = texts
        self._options = options
        self._calls: list[ProgramCall] = []
        self._word_count = 0
        self._depth = 0  # of code in code
        self._assigned = script.assigned
        self._values: dict[str, list[Slot]] = {}  # by variable
        self._run: list[Word] = []  # files and folders of which something runs

    def check(self) -> None:
        self._add_script(self._script)
        self._find_values()
        for name, found in self._values.items():
            if rules.UNSAFE_VARIABLES.fullmatch(name) or name in self._script.pointers:
                _refuse(found, f"in the variable {name}, which changes how programs run")
            if name in self._script.numbers or rules.NUMBER_VARIABLES.fullmatch(name):
                _require_digits(found)
        if any(name.startswith(("$", "EASEL_")) for name in self._script.numbers):
            _require_digits(self._slots)
        for call in self._calls:
            self._check_call(call)
        for call in self._calls:
            self._check_files(call)
        self._check_texts()

    # --- calls ----------------------------------------------------------------------------------------------

    def _add_script(self, script: ShellScript) -> None:
        self._script.functions |= script.functions
        self._script.numbers |= script.numbers
        self._script.pointers |= script.pointers
        self._assigned += script.assigned if script is not self._script else ()
        for node in script.commands:
            self._add_call(node.words, node)

    def _add_call(self, words: Sequence[Word], node: SyntaxNode, *, is_fed: bool = False) -> None:
        while words and words[0].assigns:
            self._assigned.append((words[0].assigns, words[:1]))
            words = words[1:]
        if not words:
            return
        name = program_name(words[0])
        call = ProgramCall(name, words, node, is_fed, list(islice(find_started(name, words), MAX_STARTED)))
        self._word_count += len(words)
        if self._word_count > MAX_WORDS or len(call.starts) == MAX_STARTED:
            refuse("the command starts too many programs; put it into a script.")
        self._calls.append(call)
        if name == "exec":  # its redirections are those of all that follows
            self._script.root.redirections += node.redirections
        self._find_assignments(call)
        for inner in call.starts:
            if "joins" in call.rule:
                self._add_code([piece for word in inner for piece in (*word.pieces, " ")], node)
            else:
                self._add_call(inner, node, is_fed=is_fed or "feeds" in call.rule)
        for pieces in find_code(call) if "shell" in call.rule else ():
            self._add_code(pieces, node)
        if name == "trap" and not any(word.slots for word in words):
            self._add_code([piece for word in words[1:] for piece in (*word.pieces, " ")], node)

    def _find_assignments(self, call: ProgramCall) -> None:
        name, words, node = call.name, call.words, call.node
        is_number = "names" in call.rule and any(re.match("-[a-zA-Z]*i", word.head) for word in words)
        is_test = name in rules.TESTS and _has_any(words, rules.NUMBER_TESTS)
        if is_number or is_test or "numbers" in call.rule:
            self._script.numbers.update(re.findall(NAME, " ".join(word.head for word in words[1:])))
        if name in {"for", "select"} and len(words) > 1:
            _refuse(self._in_word(words[1]), "the name of a variable")
            self._assigned.append((words[1].literal or "", words[3:] or [Word([Expansion("@")])]))
        for before, word in pairwise(words):
            if name == "printf" and before.literal == "-v":
                self._assigned.append((word.literal or "", words))
            if "feeds" in call.rule and is_named(before, {"-a", "--arg-file"}):
                node.redirections.append(("<", word))
            assigns = _ASSIGNMENT.match(word.head)
            if assigns and ("names" in call.rule or "launch" in call.rule or name == "make"):
                is_own = "verbs" not in call.rule or word.head[0] == "-" or is_named(before, {"-e", "--env"})
                self._assigned += [(assigns[1], [word])] if is_own else []

    def _add_code(self, pieces: Sequence[Piece], node: SyntaxNode) -> None:
        slots = _slots_of(pieces)
        self._depth += 1
        self._add_script(read_script(_text_of(pieces), slots, node, self._depth))
        self._depth -= 1
        for slot in slots:
            slot.is_inner = True

    # --- values ---------------------------------------------------------------------------------------------

    def _find_values(self) -> None:
        for call in self._calls:
            if call.name in {"read", "mapfile", "readarray"}:
                found = list(self._inputs(call.node))
                self._values |= {word.literal: found for word in call.words[1:] if word.literal and found}
        for _ in range(MAX_NESTING):
            before = sum(map(len, self._values.values()))
            for name, words in self._assigned:
                found = [*self._values.get(name, ()), *self._in_words(words)]
                self._values |= {name: list(dict.fromkeys(found))} if found else {}
            if sum(map(len, self._values.values())) == before:
                return
        refuse("the variables of the command are assigned in too many steps; put it into a script.")

    def _in_words(self, words: Iterable[Word]) -> list[Slot]:
        return [slot for word in words for slot in self._in_word(word)]

    def _in_word(self, word: Word) -> list[Slot]:
        found = word.slots
        for part in (piece for piece in word.pieces if isinstance(piece, Expansion)):
            found += self._slots if _ANY_VALUE.fullmatch(part.name) else self._values.get(part.name, ())
            found += self._in_words(part.words)
            found += self._in_node(part.group) if part.group else ()
        return found

    def _in_node(self, node: SyntaxNode) -> list[Slot]:
        words = (*node.words, *(word for _, word in node.redirections))
        return [*self._in_words(words), *(slot for child in node.children for slot in self._in_node(child))]

    def _inputs(self, node: SyntaxNode) -> Iterator[Slot]:
        for around in _chain(node):
            for operator, word in around.redirections:
                yield from self._in_word(word) if operator in INPUTS else ()
            for before in around.before:
                yield from self._in_node(before)

    # --- the rules ------------------------------------------------------------------------------------------

    def _check_call(self, call: ProgramCall) -> None:
        name, rule, words = call.name, call.rule, call.words
        if name not in {"for", "select", "case"}:
            _refuse(self._in_word(words[0]), f"where a command's name begins; {_RUNS}")
        verbs = {word.literal or word.head for word in words[1:4]}
        is_evaluated = "evaluates" in rule and (not rule["evaluates"] or verbs & rule["evaluates"])
        if is_evaluated and not {"user.name", "user.email"} & verbs:  # of `git config`
            _refuse(self._in_words(words[1:]), f"an operand of `{name}`; {_RUNS}")
        for previous, word in pairwise(words):
            if slots := self._in_word(word):
                self._check_argument(call, previous.literal or "", word, slots)
        for pieces in find_code(call):
            self._check_code(call, pieces)
        if "script" in rule:
            self._check_script(call)
        starts_input = call.is_fed and "launch" in rule and "verbs" not in rule
        if "input" in rule or (not call.starts and (starts_input or ("joins" in rule and "launch" in rule))):
            self._check_input(call)
        flags = "".join(word.head for word in words if "names" in rule and re.match("-[a-zA-Z]", word.head))
        if "numbers" in rule or "i" in flags:
            _require_digits(self._in_words(words[1:]))
        if "n" in flags:
            _refuse(self._in_words(words[1:]), "the name of a variable")
        if name in self._script.functions or (
            name in {".", "source"} and any(word.head.startswith("/dev/") for word in words)
        ):
            self._check_input(call)
        if name in {"cd", "pushd"}:
            self._check_folder(words[-1])

    def _check_folder(self, folder: Word) -> None:
        """Check the folder of `cd`, if a program follows that runs the code of its folder."""
        if any("folder" in call.rule or call.words[0].head.startswith(("./", "../")) for call in self._calls):
            self._run.append(folder)
            if "/" not in folder.head:
                _refuse(self._in_word(folder), f"a folder without a literal folder before it; {_RUNS}")

    def _check_argument(self, call: ProgramCall, previous: str, word: Word, slots: list[Slot]) -> None:
        name, rule = call.name, call.rule
        option = re.split("[=:]", word.head)[0] if word.head.startswith("-") else ""
        options = {previous, option, *letters_of(option), *letters_of(previous)[-1:]}
        is_variable = name in {*rules.TESTS, "printf"} and (previous in {"-v", "-R"} or word.head == "-v")
        is_variable |= (
            {"verbs", "nocode"} <= rule.options.keys() and previous in {"-e", "--env"} and not word.head
        )
        if is_variable or ("names" in rule and not _ASSIGNMENT.match(word.head)):
            _refuse(slots, f"the name of a variable for `{name}`")
        if name in rules.TESTS and _has_any(call.words, rules.NUMBER_TESTS):
            _require_digits(slots)
        # An option may be abbreviated.
        options |= {
            full
            for full in rule["files"]
            for given in (option, previous)
            if len(given) > 4 and full.startswith(given)
        }
        if options & rule["files"] or any(map(rules.FILE_OPTION.fullmatch, options)):
            _refuse(slots, f"the value of {option or previous} of `{name}`; {_RUNS}")
        if "folder" in rule and options & rules.FOLDER_OPTIONS and "/" not in word.head:
            _refuse(slots, f"a folder for `{name}` without a literal folder before it; {_RUNS}")
        self._require_values(word)
        if previous == "--" and _has_any(call.words, {"exec", "ssh", "shell"}) and not rule.options:
            _refuse(slots, f"where a command's name begins; {_RUNS}")
        if name == "parallel" and any(other.head.startswith(":::") for other in call.words):
            _refuse(slots, "in what `parallel` runs")
        if name == "tar" and word is not call.words[1] and re.match("[A-Za-z]*[IF]", call.words[1].head):
            _refuse(slots, f"behind {call.words[1].head} of `tar`; {_RUNS}")
        if word.head in {"-", "--"} and slots[0] not in self._options:
            refuse_slot(slots[0], 'the name of an option; if that is intended, name it in "allowOptions"')
        if name == "git" and previous == "-u" and _has_any(call.words, {"clone"}):
            _refuse(slots, f"the value of -u of `git clone`; {_RUNS}")
        if previous == "clone" and name == "git" and not word.head and len(call.words) > 3:
            _refuse(slots, "an address without a literal beginning, because its code could run")
        if not rule.options.keys().isdisjoint({"files", "script", "launch"}):
            named = [slot for slot in slots if slot in self._options]
            _refuse(named, f'in "allowOptions", because `{name}` has options that run a command')

    def _require_values(self, word: Word) -> None:
        """Mark the slots that must not be empty: then a later part of the word would be an option. RS-57"""
        rest = next((piece for piece in word.pieces if not isinstance(piece, Slot)), "")
        for slot in word.slots if isinstance(word.pieces[0], Slot) else ():
            vanishes = not rest and slot.is_inner and not word.is_quoted
            slot.needs_value |= vanishes or (isinstance(rest, str) and rest.startswith("-"))

    def _check_code(self, call: ProgramCall, pieces: Sequence[Piece]) -> None:
        text = _text_of(pieces)
        used = [piece for piece in pieces if isinstance(piece, Expansion)]
        _refuse(self._in_word(Word([*used])), f"in a variable in the code of `{call.name}`")
        if call.is_fed:
            self._check_input(call)
        if "shell" not in call.rule:
            for variable, found in self._values.items():
                if re.search(rf"\b{re.escape(variable)}\b", text):
                    _refuse(found, f"in the variable {variable}, which the code of `{call.name}` uses")
            check_quotes(text, _slots_of(pieces), program=call.name)

    def _check_input(self, call: ProgramCall) -> None:
        _refuse(list(self._inputs(call.node)), f"in what is piped or redirected into `{call.name}`, as code")

    def _check_script(self, call: ProgramCall) -> None:
        words, index, code, is_shell = call.words, 1, rules.CODE_OPTION, "shell" in call.rule
        if call.is_fed:
            self._check_input(call)
        letters = re.compile(rf"-[A-Za-z]*[{call.rule.text('code')}]") if call.rule["code"] else code
        begin = ("-", "+") if is_shell else "-"
        while (
            index < len(words)
            and words[index].head.startswith(begin)
            and (words[index].head != "-" or is_shell)
        ):
            option = words[index].literal or ""
            if option == "-m" and _has_any(words[index + 1 : index + 2], rules.RUN_MODULES):
                _refuse(self._in_words(words[index + 2 :]), f"in the script of `{call.name}`; {_RUNS}")
            is_late = is_shell and any(word.head.startswith(begin) for word in words[index + 1 : index + 2])
            if is_late and letters.fullmatch(option):
                _refuse(self._in_words(words), f"behind an option after {option}; {_RUNS}")
            if option == "-m" or letters.fullmatch(option) or (option[:2] == "--" and code.fullmatch(option)):
                return  # the rest is data for the module, or for the code
            takes = {option, *letters_of(option)[-1:]} & call.rule["files"]
            index += len(words) if option == "-s" else 2 if takes else 1
        rest = words[index:]
        if call.name in {"deno", "bun"}:
            rest = [
                word for word in rest if not word.head.startswith("-") and not is_named(word, {"run", "test"})
            ]
        if not rest or any(
            word.head.startswith("/dev/") or is_named(word, {"-", *rules.CONSOLES}) for word in rest
        ):
            self._check_input(call)
        else:
            _refuse(self._in_word(rest[0]), f"in the script of `{call.name}`; {_RUNS}")
            self._run.append(rest[0])

    def _check_files(self, call: ProgramCall) -> None:
        """Check that no file to which a value is written or copied is one that runs."""
        slots = [*self._in_node(call.node), *self._in_words(call.words), *self._inputs(call.node)]
        words = call.words
        targets = [word for node in _chain(call.node) for op, word in node.redirections if op in OUTPUTS]
        edits = call.name in {"sed", "perl"} and any(word.head.startswith("-i") for word in words)
        if edits or "copies" in call.rule or (call.name == "git" and _has_any(words, {"clone"})):
            targets += words[1:]
        outputs = rules.OUTPUT_OPTIONS
        targets += [
            word
            for before, word in pairwise(words)
            if {before.literal, *letters_of(before.head)[-1:]} & outputs
        ]
        glued = (word.head for word in words if len(word.head) > 2 and word.head.startswith(tuple(outputs)))
        targets += [Word([head[2:].rpartition("=")[2]]) for head in glued]
        run = [
            *self._run,
            *(other.words[0] for other in self._calls if "/" in (other.words[0].literal or "")),
        ]
        run += [word for other in self._calls if other.name in {".", "source"} for word in other.words[1:2]]
        run += [
            word
            for other in self._calls
            for before, word in pairwise(other.words)
            if is_named(before, other.rule["files"])
        ]
        for target in targets if slots else ():
            name = "".join(piece if isinstance(piece, str) else "x" for piece in target.pieces)
            if rules.RUN_FILES.fullmatch(name.rpartition("=")[2]):
                _refuse(slots, f"written to {name}, which other programs run")
            if any(_may_be_same(target, word) for word in run):
                _refuse(slots, f"written to `{name}`, which this command runs")

    # --- any text -------------------------------------------------------------------------------------------

    def _check_texts(self) -> None:
        found: set[Slot] = set()
        for call in self._calls if self._texts else ():
            for word in call.words[1:]:
                for slot in (slot for slot in word.slots if slot in self._texts):
                    self._check_text(slot, word, call)
                    found.add(slot)
            found.update(slot for op, word in call.node.redirections if op == "<" for slot in word.slots)
        for slot in self._texts:
            if slot not in found or slot.is_inner or slot.digits:
                refuse_slot(slot, 'any text ("text") here, but only an argument of a command')

    def _check_text(self, slot: Slot, word: Word, call: ProgramCall) -> None:
        if word.pieces not in ([slot], [word.head, slot]) or (word.head or "=")[-1] not in "=/:":
            refuse_slot(
                slot, "any text in a part of a word; only a prefix that ends in = / or : may precede it"
            )
        reads_code = call.name == "perl" and any(re.match(r"-\w*[np]", word.head) for word in call.words[1:])
        if (
            reads_code
            or call.name in self._script.functions | {"for", "select"}
            or not (call.rule.options.keys().isdisjoint({"notext", "names", "joins", "numbers"}))
        ):
            refuse_slot(slot, f"any text for `{call.name}`, which could read it as code")
        for node in _chain(call.node):
            if node.is_captured or _writes(node):
                refuse_slot(slot, "any text in a command whose output goes to a file or into a word")
            for after in node.after:
                if not after.words or program_name(after.words[0]) not in rules.FILTERS or _writes(after):
                    refuse_slot(slot, "any text in a command whose output goes to a program that may run it")


def _slots_of(pieces: Sequence[Piece]) -> list[Slot]:
    return [piece for piece in pieces if isinstance(piece, Slot)]


def _text_of(pieces: Sequence[Piece]) -> str:
    return "".join(
        piece if isinstance(piece, str) else SLOT if isinstance(piece, Slot) else OPAQUE for piece in pieces
    )


def _chain(node: SyntaxNode | None) -> Iterator[SyntaxNode]:
    while node is not None:
        yield node
        node = node.parent


def _writes(node: SyntaxNode) -> bool:
    return any(
        operator in OUTPUTS and not is_named(word, rules.DEVICES) and not (word.literal or "").isdecimal()
        for operator, word in node.redirections
    )


def _may_be_same(target: Word, run: Word) -> bool:
    """Return whether a file that is written may be one that runs, or the folder of it."""
    path = (run.literal or run.tail).removeprefix("./")
    name = path.rpartition("/")[2]
    if target.literal is not None:
        written = target.literal.rpartition("=")[2].removeprefix("./").rstrip("/")
        return written.rpartition("/")[2] == name or f"{path}/".startswith(f"{written}/")
    return name.endswith(target.tail.rpartition("/")[2])


def _has_any(words: Sequence[Word], names: Collection[str]) -> bool:
    return any(word.literal in names for word in words)


def _refuse(slots: Sequence[Slot], where: str) -> None:
    if slots:
        refuse_slot(slots[0], where)


def _require_digits(slots: Iterable[Slot]) -> None:
    for slot in slots:
        slot.digits = True
