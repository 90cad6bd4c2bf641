"""The commands `easel secret set`, `list` and `delete`: the secrets that actions of your canvases use.

A secret is typed without echo or read from standard input; it is never an argument of a process.
"""

import getpass
import sys
from typing import Annotated

import typer

from easel.cli.options import AccountOption, DataOption, TokenOption, UrlOption
from easel.cli.terminal import connect, failing_in_one_sentence, is_terminal
from easel.core.secret.secret import MAX_VALUE_BYTES, check_secret_name, check_secret_value

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="""Set, list and delete the secrets that actions of your canvases use.

    A spec names a secret as {"$secret": "NAME"}; the running Easel stores its value encrypted and never shows
    it.

    Example: `easel secret set DEPLOY_KEY`, then `easel secret list`""",
)

PATH = "/api/secrets"
PAGE_SIZE = 200
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Letters, digits and _, as DEPLOY_KEY.")]


@app.command("set")
def set_secret(
    name: NameArgument,
    url: UrlOption = None,
    token: TokenOption = None,
    account: AccountOption = None,
    data: DataOption = None,
) -> None:
    """Store a secret in the running Easel, or replace it. You type it without echo, or pipe it.

    One line break at the end of piped text is not part of the secret: `easel secret set DEPLOY_KEY < key.txt`

    Example: `easel secret set DEPLOY_KEY`
    """
    with failing_in_one_sentence():
        check_secret_name(name, "NAME")
        client = connect(url, token, data, account)
        client.send("PUT", f"{PATH}/{name}", {"value": check_secret_value(_read_value(name))})
    typer.echo(f"Stored {name}.")


@app.command("list")
def list_secrets(
    url: UrlOption = None, token: TokenOption = None, account: AccountOption = None, data: DataOption = None
) -> None:
    """List the names of your secrets, and when each was last set. No command prints a value.

    Example: `easel secret list`
    """
    with failing_in_one_sentence():
        client, after, count = connect(url, token, data, account), "", 0
        while True:
            page = client.send("GET", f"{PATH}?limit={PAGE_SIZE}&after={after}")
            for secret in page["secrets"]:
                typer.echo(f"{secret['name']}   set {secret['updated_at']}")
            count += len(page["secrets"])
            after = page.get("next")
            if not after:
                break
    if not count:
        typer.echo("You have no secrets; `easel secret set NAME` stores one.")


@app.command("delete")
def delete_secret(
    name: NameArgument,
    url: UrlOption = None,
    token: TokenOption = None,
    account: AccountOption = None,
    data: DataOption = None,
) -> None:
    """Delete a secret. Actions that use it fail until it is set again.

    Example: `easel secret delete DEPLOY_KEY`
    """
    with failing_in_one_sentence():
        check_secret_name(name, "NAME")
        connect(url, token, data, account).send("DELETE", f"{PATH}/{name}")
    typer.echo(f"Deleted {name}.")


def _read_value(name: str) -> str:
    if is_terminal(sys.stdin):
        return getpass.getpass(f"{name} (not shown): ")
    return sys.stdin.read(MAX_VALUE_BYTES + 2).removesuffix("\n").removesuffix("\r")
