"""The addresses of model servers that persons and teams may use: public ones, unless the host allows others.

Owns the right to a private or loopback address: of everybody if EASEL_PRIVATE_BASE_URLS is on, else only of
an operator of the host, in their own account. The address is checked when it is saved and before each
request; the connection checks it once more, because a name may lead elsewhere by then.
"""

from collections.abc import Awaitable, Callable, Sequence
from ipaddress import ip_address
from urllib.parse import urlsplit

from easel.core.account import Person
from easel.core.web.hosts import may_connect
from easel.ids import AccountId

Resolve = Callable[[str], Awaitable[Sequence[str]]]  # from a name to IP addresses
FindPerson = Callable[[AccountId], Awaitable[Person | None]]
NOT_PUBLIC = (
    "this server allows only public addresses of models; an operator can allow others with "
    "EASEL_PRIVATE_BASE_URLS."
)


class BaseUrls:
    def __init__(self, find_person: FindPerson, resolve: Resolve, *, allow_private: bool) -> None:
        self._find_person = find_person
        self._resolve = resolve
        self._allow_private = allow_private

    async def may_be_private(self, account_id: AccountId) -> bool:
        """Return whether this account may use an address that is not public."""
        if self._allow_private:
            return True
        person = await self._find_person(account_id)
        return person is not None and person.is_operator

    async def is_public(self, base_url: str) -> bool:
        """Return whether every address of the name is public. A name without one counts as public."""
        try:
            found = await self._resolve(urlsplit(base_url).hostname or "")
        except (OSError, UnicodeError):
            return True  # the request fails
        return all(may_connect(ip_address(address.partition("%")[0]), ()) for address in found)
