import re

from hypothesis import example, given
from hypothesis import strategies as st

from tests.tools.fakes import offer
from tools.base import Offer
from tools.names import ORIGINS, assign

LEGAL = re.compile(r"[A-Za-z0-9_-]{1,64}")


def names(*offers: Offer, taken: frozenset[str] = frozenset()) -> list[str]:
    return [shown.name for shown in assign(taken, offers)]


def test_a_legal_free_name_is_kept():
    assert names(offer("get_weather", "x" * 64)) == ["get_weather", "x" * 64]


def test_of_two_servers_with_one_tool_name_both_stay_callable():
    first, second = offer("search", label="docs"), offer("search", label="web")
    shown = assign((), [first, second])
    assert [(one.name, one.offer) for one in shown] == [
        ("search", first),
        ("web__search", second),
    ]


def test_the_callers_own_tool_keeps_its_name():
    assert names(offer("search", label="web"), taken=frozenset({"search"})) == ["web__search"]


def test_a_registered_tool_is_prefixed_with_orazaka():
    registry = offer("search", origin="registered", label="registry")
    assert names(registry, offer("search", label="web")) == ["search", "orazaka__search"]


def test_no_server_gets_the_prefix_of_registered_tools():
    impostor = offer("search", label="orazaka", origin="user")
    assert names(offer("search", label="web"), impostor) == ["search", "orazaka_2__search"]


def test_origins_choose_in_their_order_whatever_the_order_of_offers():
    offers = [offer("t", origin=origin, label=origin) for origin in reversed(ORIGINS)]
    assert [one.offer.origin for one in assign((), offers)] == list(ORIGINS)
    assert names(*offers)[0] == "t"


def test_offers_of_one_origin_keep_their_order():
    assert names(offer("b"), offer("a")) == ["b", "a"]


def test_equal_labels_are_numbered():
    offers = [offer("t", label="srv") for _ in range(3)]
    assert names(*offers) == ["t", "srv_2__t", "srv_3__t"]


def test_labels_that_look_alike_once_legal_are_numbered():
    offers = [offer("t", label="web"), offer("t", label="a.b"), offer("t", label="a b")]
    assert names(*offers) == ["t", "a_b__t", "a_b_2__t"]


def test_illegal_characters_are_replaced_behind_the_servers_name():
    assert names(offer("repo.issues/list", label="Git Hub")) == ["Git_Hub__repo_issues_list"]


def test_a_name_with_a_line_end_is_not_legal():
    assert names(offer("search\n")) == ["srv__search_"]


def test_names_that_look_alike_once_legal_are_told_apart():
    first, second = names(offer("a.b", "a/b"))
    assert first == "srv__a_b"
    assert re.fullmatch("srv__a_b_[0-9a-f]{8}", second)


def test_a_name_that_is_too_long_is_cut_with_a_hash():
    long, other = names(offer("x" * 65, "x" * 64 + "y"))
    assert re.fullmatch("srv__x{50}_[0-9a-f]{8}", long)
    assert long != other


def test_a_shortened_name_is_the_same_on_every_replica():
    assert names(offer("x" * 65)) == ["srv__" + "x" * 50 + "_ea6d3e9f"]


def test_a_label_of_128_characters_leaves_a_legal_name():
    [_, name] = names(offer("t"), offer("t", label="é" * 128))
    assert LEGAL.fullmatch(name)


def test_a_plain_tool_that_is_called_like_a_prefixed_one_collides_with_nothing():
    offers = [offer("b"), offer("b", label="a"), offer("a__b", label="c")]
    assert names(*offers) == ["b", "a__b", "c__a__b"]


def test_a_prefixed_name_that_is_taken_gets_a_hash():
    [_, name] = names(offer("b"), offer("b", label="a"), taken=frozenset({"a__b"}))
    assert re.fullmatch("a__b_[0-9a-f]{8}", name)


def test_of_two_tools_with_one_name_from_one_server_the_first_counts():
    twice = offer("t", "u", "t")
    assert [one.spec for one in assign((), [twice])] == list(twice.specs[:2])


tool_names = st.text(max_size=80) | st.sampled_from(["a", "a__a", "a_2__a", "a.a", "x" * 70])
offers = st.builds(
    lambda names, origin, label: offer(*names, origin=origin, label=label),
    st.lists(tool_names, max_size=6),
    st.sampled_from(ORIGINS),
    st.sampled_from(["a", "a_2", "", "é", "orazaka", "l" * 128]) | st.text(max_size=20),
)


@given(st.lists(offers, max_size=5), st.frozensets(tool_names, max_size=3))
@example([offer("\ud800", label="\udfff")], frozenset())
def test_names_are_legal_unique_and_the_same_each_time(offers, taken):
    shown = assign(taken, offers)
    chosen = [one.name for one in shown]
    assert all(LEGAL.fullmatch(name) for name in chosen)
    assert len({*chosen, *taken}) == len(chosen) + len(taken)
    assert len(chosen) == sum(len({spec.name for spec in one.specs}) for one in offers)
    assert [one.name for one in assign(taken, offers)] == chosen
