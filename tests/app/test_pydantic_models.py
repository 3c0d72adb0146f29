"""Pydantic models as arguments and as results, by their own rules."""

from datetime import UTC, datetime
from typing import Generic, TypeVar

import pytest
from pydantic import BaseModel, ConfigDict, Field, RootModel, SecretStr, computed_field

from leftfold import App, ValidationError

T = TypeVar("T")


class Address(BaseModel):
    """With a rule that only Pydantic knows."""

    zip_code: str = Field(pattern=r"^\d{5}$")


class User(BaseModel):
    """With everything that could get lost between writing and reading."""

    model_config = ConfigDict(strict=True, extra="forbid")

    name: str = Field(alias="userName")
    mail: str = Field(validation_alias="e-mail", serialization_alias="mailTo")
    born: datetime
    home: Address | None = None
    tags: set[str] = set()

    @computed_field  # type: ignore[prop-decorator]  # as Pydantic's own documentation says
    @property
    def initial(self) -> str:
        return self.name[0]


class Page(BaseModel, Generic[T]):
    """A generic model."""

    items: list[T]


class Names(RootModel[list[str]]):
    """A model that is a list."""


ANN = User.model_validate(
    {"userName": "ann", "e-mail": "ann@example.org", "born": datetime(2000, 1, 1, tzinfo=UTC), "tags": {"a", "b"},
     "home": Address(zip_code="12345")}
)  # fmt: skip


def test_models_pass_through_a_store_and_back(app: App) -> None:
    @app.job
    def moved(user: User, to: Address | None = None, *, page: Page[Address], names: Names) -> dict[str, User]:
        assert isinstance(page.items[0], Address)
        return {name: user.model_copy(update={"home": to}) for name in names.root}

    page = Page[Address](items=[Address(zip_code="54321")])
    handle = moved.enqueue(ANN, Address(zip_code="00000"), page=page, names=Names(["x"]))
    app.run_worker(until_idle=True)
    assert handle.result(0) == {"x": ANN.model_copy(update={"home": Address(zip_code="00000")})}


def test_a_model_s_own_rules_count_at_enqueue() -> None:
    app = App("sqlite:///:memory:")

    @app.job
    def move(to: Address) -> None: ...

    assert bytes(move.call({"zip_code": "12345"}).payload) == b'{"to":{"zip_code":"12345"}}'  # type: ignore[arg-type]  # what a type checker would refuse must be refused at run time, too
    with pytest.raises(ValidationError, match="String should match pattern"):
        move.call({"zip_code": "abc"})  # type: ignore[arg-type]  # what a type checker would refuse must be refused at run time, too
    with pytest.raises(ValidationError, match="String should match pattern"):
        move.call(Address.model_construct(zip_code="abc"))
    with pytest.raises(ValidationError):
        move.call("12345")  # type: ignore[arg-type]  # what a type checker would refuse must be refused at run time, too


class Login(BaseModel):
    """With what a model keeps to itself when it is written."""

    name: str
    password: SecretStr = SecretStr("")
    token: str = Field(default="", exclude=True)


def test_what_would_not_reach_the_handler_is_refused_at_enqueue_without_telling_it() -> None:
    app = App("sqlite:///:memory:")

    @app.job
    def enter(who: list[Login]) -> None: ...

    assert bytes(enter.call([Login(name="ann")]).payload) == b'{"who":[{"name":"ann","password":""}]}'
    for hidden in (Login(name="ann", password=SecretStr("s3cret")), Login(name="ann", token="s3cret")):
        with pytest.raises(ValidationError, match="of Login would not reach the handler") as problem:
            enter.call([Login(name="bob"), hidden])
        assert "s3cret" not in str(problem.value)


def test_a_result_may_keep_things_to_itself(app: App) -> None:
    @app.job
    def entered() -> Login:
        return Login(name="ann", password=SecretStr("s3cret"), token="s3cret")

    handle = entered.enqueue()
    app.run_worker(until_idle=True)
    assert handle.result(0) == Login(name="ann", password=SecretStr("**********"))
