"""The commands `easel settings`, and `easel settings list`, `get`, `set`, `unset` and `rotate`.

A secret is typed without echo or read from standard input; it is never an argument of a process.
"""

import getpass
import sys
from typing import Annotated, Any

import typer

from easel import settings as all_settings
from easel.cli.options import AccountOption, DataOption, TokenOption, UrlOption
from easel.cli.terminal import connect, failing_in_one_sentence, is_terminal, load_settings, run_short
from easel.core.model.settings import MAX_KEY_LENGTH, NAMES, SECRET_NAMES, check_value
from easel.errors import BadInput
from easel.settings_oauth import FAMILY, PARTS

app = typer.Typer(
    invoke_without_command=True,
    rich_markup_mode=None,
    help="""List the settings of this host, or change your own: which model you use, and with which key.

    `easel settings` alone lists every EASEL_* setting. Your own settings are stored by the running Easel and
    used before those of the host: provider, model, api_key, base_url, reasoning_effort and token_budget;
    and approval_by of a team.

    Example: `easel settings set provider anthropic`, then `easel settings set api_key`""",
)

PATH = "/api/settings"
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help=f"One of {', '.join(NAMES)}.")]


@app.callback()
def show_unless_command(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        list_settings()


@app.command("list")
def list_settings() -> None:
    """List every setting of this host with its value, its default and its description.

    Example: `EASEL_PORT=9000 easel settings list`
    """
    config = load_settings()
    for row in all_settings.rows():
        value = getattr(config, row.name)
        shown = "(set)" if row.secret and value else repr(value)
        default = "" if value == row.default else f"   (default {row.default!r})"
        typer.echo(f"{row.variable}={shown}{default}")
        typer.echo(f"    {row.description}")
    for name, part in PARTS.items():
        given = [provider.name for provider in config.oauth if getattr(provider, name.lower())]
        typer.echo(f"{FAMILY}{name}: " + (f"for {', '.join(given)}" if given else "none"))
        typer.echo(f"    {part.description}")
    for name, nearest in all_settings.unknown_variables().items():
        typer.echo(f"{name}: unknown setting" + (f"; did you mean {nearest}?" if nearest else "."))


@app.command("get")
def get_settings(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Only this one; all of them by default.")
    ] = None,
    url: UrlOption = None,
    token: TokenOption = None,
    account: AccountOption = None,
    data: DataOption = None,
) -> None:
    """Print your own settings, and where each value comes from. A key is masked.

    Example: `easel settings get model`
    """
    with failing_in_one_sentence():
        if name is not None:
            _check_name(name)
        shown = connect(url, token, data, account).send("GET", PATH)
    if name is None:
        _print(shown)
    else:
        typer.echo("" if shown[name] is None else shown[name])


@app.command("set")
def set_setting(
    name: NameArgument,
    value: Annotated[
        str | None, typer.Argument(metavar="[VALUE]", help="The value; api_key is asked for instead.")
    ] = None,
    url: UrlOption = None,
    token: TokenOption = None,
    account: AccountOption = None,
    data: DataOption = None,
) -> None:
    """Change one of your own settings in the running Easel; runs use it from their next step on.

    The key is typed without echo, or read from standard input: `easel settings set api_key < key.txt`

    Example: `easel settings set provider anthropic`
    """
    with failing_in_one_sentence():
        _check_name(name)
        client = connect(url, token, data, account)
        text = check_value(name, _read_value(name, value))
        shown = client.send("PUT", PATH, {name: int(text) if name == "token_budget" else text})
    _print(shown)


@app.command("unset")
def unset_setting(
    name: NameArgument,
    url: UrlOption = None,
    token: TokenOption = None,
    account: AccountOption = None,
    data: DataOption = None,
) -> None:
    """Clear one of your own settings, so that the host's is used again. A stored key is deleted.

    Example: `easel settings unset api_key`
    """
    with failing_in_one_sentence():
        _check_name(name)
        shown = connect(url, token, data, account).send("PUT", PATH, {name: None})
    _print(shown)


@app.command("rotate")
def rotate_keys(data: DataOption = None) -> None:
    """Encrypt the stored keys of all users again with EASEL_SECRET_KEY, after you changed it.

    The earlier key must be in EASEL_OLD_SECRET_KEYS. Works while an Easel is running.

    Example: `EASEL_SECRET_KEY=… EASEL_OLD_SECRET_KEYS=… easel settings rotate`
    """
    from easel.assembly.models import rotate_secrets

    config = load_settings(data=data)

    async def rotate() -> None:
        count = await rotate_secrets(config)
        typer.echo(
            f"Encrypted {count} {'key' if count == 1 else 'keys'} again." if count else "Nothing to do."
        )

    run_short(rotate)


def _check_name(name: str) -> None:
    if name not in NAMES:
        check_value(name, "")  # raises, with the nearest name


def _read_value(name: str, value: str | None) -> str:
    """Return the value. A secret is read from the terminal or a pipe, and refused as an argument."""
    if name not in SECRET_NAMES:
        if value is None:
            raise BadInput(problem=f"{name}: give its value: `easel settings set {name} VALUE`.")
        return value
    if value is not None:
        raise BadInput(
            problem=f"{name} must not be an argument: other users can read it in `ps`, and the shell stores "
            f"it. Run `easel settings set {name}` and type it, or pipe it: "
            f"`easel settings set {name} < FILE`. Nothing was changed."
        )
    if is_terminal(sys.stdin):
        return getpass.getpass(f"{name} (not shown): ").strip()
    return sys.stdin.read(MAX_KEY_LENGTH + 2).strip()


def _print(shown: dict[str, Any]) -> None:
    for name in NAMES:
        value = "-" if shown[name] is None else shown[name]
        typer.echo(f"{name:<17} {value}   ({shown['sources'][name]})")
    if note := shown.get("note"):
        typer.echo(f"Note: {note}")
