"""Which rights a user has, tried on real servers."""

import pytest

from claimlib.errors import SourceUnreachableError
from claimlib.live.connection import connect
from claimlib.live.rights import tried_rights
from claimlib.testing.server_process import valkey_server
from tests.live.readings import LEAST_RIGHTS, without

NEEDED = {right for right in LEAST_RIGHTS if right != "-@all"}


@pytest.fixture(scope="module")
def server(each_server):
    return each_server


def rights(server, login, db=0):
    """The rules of the rights that the user has, and of those that it lacks."""
    rules = ([], [])
    with connect(server.url, **login) as source:
        for right, denied in tried_rights(source, db):
            rules[denied is not None].append(right.rule)
    return rules


def test_the_documented_user_has_every_right_and_no_other_is_asked_for(server, user):
    granted, lacking = rights(server, user(*LEAST_RIGHTS))
    assert (set(granted), lacking) == (NEEDED, [])


@pytest.mark.parametrize("right", sorted(NEEDED))
def test_each_right_that_is_missing_is_named_by_its_rule(server, user, right):
    granted, lacking = rights(server, user(*without(LEAST_RIGHTS, right)))
    assert (set(granted), lacking) == (NEEDED - {right}, [right])


def test_a_user_without_any_lacks_all_and_nobody_knows_which_keys_it_may_read(server, user):
    granted, lacking = rights(server, user("-@all"))
    assert (granted, set(lacking)) == ([], NEEDED - {"%R~*"})


def test_another_database_takes_a_right_more(server, user):
    assert rights(server, user(*LEAST_RIGHTS), db=1)[1] == ["+select"]
    assert rights(server, user(*LEAST_RIGHTS, "+select"), db=1)[1] == []


def test_rights_to_some_keys_are_rights_to_the_commands(server, user):
    granted, lacking = rights(server, user(*without(LEAST_RIGHTS, "%R~*"), "%R~orders:*"))
    assert (set(granted), lacking) == (NEEDED - {"%R~*"}, ["%R~*"])


def test_only_what_reads_is_sent_and_nothing_is_left_behind(server, client, user):
    login = user(*LEAST_RIGHTS)
    client.config_resetstat()
    rights(server, login)
    sent = {name.removeprefix("cmdstat_") for name in client.info("commandstats")}
    taken = {right.removeprefix("+") for right in NEEDED}
    assert sent - {"config|resetstat", "auth", "hello", "client|setinfo"} <= taken
    assert client.dbsize() == 0


def test_a_command_that_the_server_does_not_know_is_denied_and_no_rule_grants_it():
    config = {"rename-command": 'XPENDING ""'}
    with valkey_server(config=config) as running, connect(running.url) as source:
        (denied,) = [denied for _, denied in tried_rights(source) if denied]
    assert "does not know xpending" in denied.message
    assert "rule" not in denied.fields


def test_a_server_that_goes_away_is_not_taken_for_one_that_grants():
    with valkey_server() as running:
        source = connect(running.url)
    with pytest.raises(SourceUnreachableError):
        list(tried_rights(source))
