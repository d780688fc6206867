"""Deploys and swaps the endpoint from outside the cluster, over HTTP. Needs neither Ray nor vLLM.

The Serve config is the truth: its `user_config` names the policy, so a restarted or new replica comes up on it. A
swap is done when every replica of the deployment has answered with the wanted version and digest.
"""

import copy
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import httpx

from pipeline.config import RunConfig, UserError, bearer, schema
from pipeline.engine.options import EngineOptions, engine_env
from serve.access import AccessSettings
from serve.access.settings import check_open
from serve.arguments import app_args
from serve.effective import Row, compare
from serve.http_address import http_options
from serve.policy import Policy, Wanted, wanted_from
from serve.preconditions import check_priorities, checked_access
from serve.turns import dashboard_port, my_turn

APP = "policy"
IMPORT_PATH = "serve.app:build"
SERVER = "HotSwapServer"  # Serve names the deployment <server class>:<model id>
STATUS_ROUTE = "/admin/version"
EFFECTIVE_ROUTE = "/admin/effective-config"
KEY_VARIABLE = "DECS_API_KEY"
POLL_S = 0.2
HTTP_TIMEOUT_S = 10.0
DASHBOARD_TIMEOUT_S = 120.0  # its first answer about Serve takes tens of seconds on few cores
ANSWER_S = 10.0  # for each replica to be heard once before a change
CHANGE_SLACK_S = 60.0  # of a change, beside its draining
FAILED = ("DEPLOY_FAILED", "UNHEALTHY")


@dataclass(frozen=True)
class Endpoint:
    """Where the endpoint answers (`url`, without /v1) and what each replica holds."""

    url: str
    model_id: str
    replicas: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class SwapReport:
    """`seconds` from the request to the last confirmation; `replicas` their status by replica id."""

    seconds: float
    version: int
    digest: str
    replicas: dict[str, dict[str, Any]]


class SwapRefused(RuntimeError):
    """A replica refused the snapshot; the endpoint was set back to what it served before."""


class SwapTimeout(TimeoutError):
    """Not every replica confirmed in time; the text names those that did not."""


FAILURES = (RuntimeError, TimeoutError, httpx.HTTPError)  # of a deployment or a change, beside a UserError


# --- public ----------------------------------------------------------------------------------------------------------


def deploy(dashboard_url: str, cfg: RunConfig, model_path: str, policy: Policy, *, app: str = APP) -> Endpoint:
    """Deploys the model as `cfg.serve` says and waits until every replica confirms `policy`.

    Other applications of the cluster are kept. Raises UserError for what `checked_access` refuses, for a port that
    Serve cannot take and where a running endpoint would lose its keys, RuntimeError with Serve's message when the
    deployment fails, SwapTimeout after `serve.start_deadline_s`.
    """
    access = checked_access(cfg)
    if access.keys and not os.environ.get(KEY_VARIABLE):
        raise UserError(
            f"the endpoint will ask for keys: set {KEY_VARIABLE} to one with the scope admin, to see it start"
        )
    wanted = Wanted(policy, access=access.to_config())
    env = engine_env(EngineOptions.from_config(cfg.engine)) | {"VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    config = {
        "name": app,
        "route_prefix": "/",
        "import_path": IMPORT_PATH,
        "runtime_env": {"env_vars": env},
        "args": app_args(cfg, model_path),
        "deployments": [{"name": deployment_name(cfg.serve.model_id), "user_config": wanted.as_config()}],
    }
    with my_turn(dashboard_url, cfg.serve.start_deadline_s):
        before = details(dashboard_url)
        if not access.keys and (has_keys(before, app) or _asks_for_keys(before, app)):
            raise UserError(
                "the endpoint that runs asks for keys and would then be open to all: name their file with "
                "serve.access.keys_file, or end it first with `python -m jobs.services down`"
            )
        _put(dashboard_url, with_app(before, config, http_options(before, cfg.serve)))
    return _confirm(dashboard_url, app, wanted, cfg.serve.start_deadline_s)


def swap(dashboard_url: str, policy: Policy, deadline: float, *, app: str = APP) -> SwapReport:
    """Swaps every replica to `policy` and waits, at most `deadline` seconds, until all have confirmed it. A canary ends
    with it.

    Raises SwapRefused when a replica refuses it, SwapTimeout, RuntimeError when the application fails (after each of
    them what was served before is asked for again), NotMyTurn when another change goes on for longer than `deadline`,
    and UserError when no such application runs.
    """
    return _change(
        dashboard_url, app, deadline, lambda now: replace(now, policy=policy, canary=None, canary_replicas=0)
    )


def start_canary(dashboard_url: str, policy: Policy, replicas: int, deadline: float, *, app: str = APP) -> SwapReport:
    """Swaps the first `replicas` replicas (by rank) to `policy`; the others go on. Raises as `swap` does, and UserError
    when no replica would stay on the deployment's own policy."""
    running = len(status(dashboard_url, app=app).replicas)
    always = min(least_replicas(details(dashboard_url), app) or running, running)  # autoscaling may take the others
    if not 1 <= replicas < always:
        option = "serve.replicas" if always == running else "serve.autoscaling.min_replicas"
        raise UserError(
            f"a canary of {replicas} would leave none of {always} replicas as it is: deploy with more {option}"
        )
    return _change(dashboard_url, app, deadline, lambda now: replace(now, canary=policy, canary_replicas=replicas))


def end_canary(dashboard_url: str, deadline: float, *, app: str = APP) -> SwapReport:
    """Takes the canary's replicas back to the deployment's policy. Without a canary it only confirms that policy. Not
    confirmed in time, it goes on being asked for; only where a replica refuses it the canary is asked for again."""
    return _change(
        dashboard_url,
        app,
        deadline,
        lambda now: replace(now, canary=None, canary_replicas=0),
        undone_by=(SwapRefused,),
    )


def set_access(
    dashboard_url: str, access: Mapping[str, object], deadline: float | None = None, *, app: str = APP
) -> SwapReport:
    """Gives every replica these access settings (`AccessSettings.to_config()`); weights stay. What a replica allows of
    a key's rate follows the number of replicas there may be, whatever `access` says of it. Within `deadline` seconds;
    None: those of any change to the running deployment. What is not confirmed goes on being asked for: a revoked key
    does not come back.

    UserError for wrong settings, for none with keys where other machines reach the endpoint, and for a key with a
    priority that the engine would refuse.
    """
    settings = AccessSettings.from_config(access)
    now = details(dashboard_url)
    check_open(settings.keys, now["http_options"]["host"], "the endpoint listens on")
    args = _app_config(now, app).get("args", {})
    policy = args.get("levers", {}).get("admission", {}).get("policy")
    if policy:  # an application from a file does not tell it
        check_priorities(settings, policy)
    settings = replace(settings, replicas=most_replicas(now, app) or settings.replicas)
    if deadline is None:
        deadline = change_deadline_s(args.get("serve", {}).get("drain_deadline_s", schema.Serve().drain_deadline_s))
    return _change(dashboard_url, app, deadline, lambda now: replace(now, access=settings.to_config()))


def change_deadline_s(drain_deadline_s: float) -> float:
    """How long a change may take to be confirmed where replicas drain for so long first."""
    return drain_deadline_s + CHANGE_SLACK_S


def _change(
    dashboard_url: str,
    app: str,
    deadline: float,
    change: Callable[[Wanted], Wanted],
    *,
    undone_by: tuple[type[Exception], ...] = (SwapTimeout, RuntimeError),
) -> SwapReport:
    """Asks for another `user_config` and waits until all replicas have confirmed it. Failures in `undone_by` take its
    policies back."""
    start = time.monotonic()
    with my_turn(dashboard_url, deadline):
        refusals = _refusals_so_far(dashboard_url, app)
        before = details(dashboard_url)
        former = wanted_now(before, app)
        wanted = change(former)
        _ask_for(dashboard_url, app, before, wanted)
        try:
            endpoint = _confirm(dashboard_url, app, wanted, deadline, refusals)
        except undone_by as error:
            try:
                _take_back(dashboard_url, app, former, wanted, deadline)
            except (UserError, *FAILURES) as other:
                text = f"{error}; what was served before is not confirmed either: {other}"
                raise type(error)(text) from error
            raise
    policy = wanted.canary or wanted.policy
    return SwapReport(time.monotonic() - start, policy.version, policy.digest, endpoint.replicas)


def _ask_for(dashboard_url: str, app: str, now: Mapping[str, Any], wanted: Wanted) -> None:
    config = copy.deepcopy(_app_config(now, app))
    name = _deployment(now, app)[0]
    deployments = config.get("deployments") or []
    own = next((entry for entry in deployments if entry["name"] == name), {"name": name})
    others = [entry for entry in deployments if entry["name"] != name]
    config["deployments"] = [own | {"user_config": wanted.as_config()}, *others]
    _put(dashboard_url, with_app(now, config, now["http_options"]))


def _take_back(dashboard_url: str, app: str, former: Wanted, failed: Wanted, deadline: float) -> None:
    """Asks for the policies of `former` again and waits for them; access settings stay as they are by now. Does nothing
    where the policies of `failed` are not what is asked for (any more), or are no others."""
    now = details(dashboard_url)
    asked = wanted_now(now, app)
    if _policies(asked) != _policies(failed) or _policies(former) == _policies(failed):
        return
    policy, canary, replicas = _policies(former)
    restored = replace(asked, policy=policy, canary=canary, canary_replicas=replicas)
    _ask_for(dashboard_url, app, now, restored)
    _confirm(dashboard_url, app, restored, deadline)


def _policies(wanted: Wanted) -> tuple[Policy, Policy | None, int]:
    return wanted.policy, wanted.canary, wanted.canary_replicas


def _refusals_so_far(dashboard_url: str, app: str) -> dict[str, int]:
    """How often each replica has refused until now, as soon as every running one has said so, at the latest after
    `ANSWER_S`: of one that was not heard, old refusals and new ones cannot be told apart."""
    end = time.monotonic() + ANSWER_S
    while True:
        now = details(dashboard_url)
        counts = {name: reply["refusals"] for name, reply in _replies(now, app).items()}
        replicas = _deployment(now, app)[1].get("replicas") or []
        running = {replica["replica_id"] for replica in replicas if replica["state"] == "RUNNING"}
        if running <= counts.keys() or time.monotonic() > end:
            return counts
        time.sleep(POLL_S)


def status(dashboard_url: str, *, app: str = APP) -> Endpoint:
    """The endpoint's address and what each running replica says it holds. UserError when it is not deployed."""
    now = details(dashboard_url)
    _app_config(now, app)
    return Endpoint(_url(now), _model_id(now, app), _replies(now, app))


def effective(dashboard_url: str, *, app: str = APP) -> list[Row]:
    """Each engine option that was asked for when the endpoint was deployed, beside what the engine of one replica (they
    are started alike) runs with. UserError when it is not deployed or does not answer."""
    now = details(dashboard_url)
    _app_config(now, app)
    told = _told(now, app, EFFECTIVE_ROUTE)
    if told is None:
        raise UserError(f"{_url(now)} does not answer {EFFECTIVE_ROUTE}: wait until it has started, then try again")
    return compare(told["requested"], told["effective"])


def deployment_name(model_id: str) -> str:
    """Serve's name of the replicas' deployment."""
    return f"{SERVER}:{model_id.replace('/', '--').replace('.', '_')}"


# --- Serve's REST interface ------------------------------------------------------------------------------------------


def details(dashboard_url: str) -> dict[str, Any]:
    """What Serve runs, as its REST interface tells it. UserError when no dashboard answers there."""
    dashboard_port(dashboard_url)
    try:
        reply = httpx.get(f"{dashboard_url}/api/serve/applications/", timeout=DASHBOARD_TIMEOUT_S, trust_env=False)
    except (httpx.TransportError, httpx.InvalidURL) as error:
        raise UserError(
            f"no Ray dashboard answers at {dashboard_url} ({error}): start one with `python -m jobs.services up`"
        ) from error
    return _checked(reply).json()


def _put(dashboard_url: str, config: dict[str, Any]) -> None:
    url = f"{dashboard_url}/api/serve/applications/"
    # The first PUT starts Serve's controller and proxy before it answers.
    _checked(httpx.put(url, json=config, timeout=DASHBOARD_TIMEOUT_S, trust_env=False))


def _checked(reply: httpx.Response) -> httpx.Response:
    if not reply.is_success:
        raise RuntimeError(f"{reply.request.method} {reply.request.url} gave {reply.status_code}: {reply.text[:2000]}")
    return reply


def with_app(before: Mapping[str, Any], config: dict[str, Any], http_options: Mapping[str, Any]) -> dict[str, Any]:
    """The whole Serve config: all applications that were deployed by config stay, `config` is added or replaced."""
    others = [
        entry["deployed_app_config"]
        for name, entry in before.get("applications", {}).items()
        if name != config["name"] and entry.get("deployed_app_config")
    ]
    address = {key: http_options[key] for key in ("host", "port")}
    return {"proxy_location": "HeadOnly", "http_options": address, "applications": [*others, config]}


def _url(now: Mapping[str, Any]) -> str:
    options = now["http_options"]
    host = "127.0.0.1" if options["host"] == "0.0.0.0" else options["host"]
    return f"http://{host}:{options['port']}"


def _app_config(now: Mapping[str, Any], app: str) -> dict[str, Any]:
    entry = now.get("applications", {}).get(app)
    if not entry or not entry.get("deployed_app_config"):
        raise UserError(f"Serve runs no application '{app}': deploy it first with `python -m jobs.serve`")
    return entry["deployed_app_config"]


def wanted_now(now: Mapping[str, Any], app: str = APP) -> Wanted:
    """What the deployment is asked to serve, from `details`. UserError when it is not there (yet)."""
    deployments = _app_config(now, app).get("deployments") or []
    name, entry = _deployment(now, app)
    running = (entry.get("deployment_config") or {}).get("user_config")
    if not running:
        raise UserError(
            f"application '{app}' has not started its replicas yet: try again, or see its status in the dashboard"
        )
    # Serve notes what is asked for at once, and gives it to the deployment a little later.
    asked = next((found.get("user_config") for found in deployments if found["name"] == name), None)
    return wanted_from(asked or running)


def _deployment(now: Mapping[str, Any], app: str) -> tuple[str, dict[str, Any]]:
    """Name and details of the replicas' deployment; an empty name while there is none."""
    found = (now.get("applications", {}).get(app) or {}).get("deployments") or {}
    return next(((name, entry) for name, entry in found.items() if name.startswith(f"{SERVER}:")), ("", {}))


def most_replicas(now: Mapping[str, Any], app: str = APP) -> int | None:
    """How many replicas the deployment may have; None where Serve does not tell."""
    return _replica_count(now, app, "max_replicas")


def least_replicas(now: Mapping[str, Any], app: str = APP) -> int | None:
    """How many replicas the deployment always has; None where Serve does not tell."""
    return _replica_count(now, app, "min_replicas")


def _replica_count(now: Mapping[str, Any], app: str, bound: str) -> int | None:
    config = _deployment(now, app)[1].get("deployment_config") or {}
    scaling = config.get("autoscaling_config")
    count = scaling.get(bound) if isinstance(scaling, dict) else config.get("num_replicas")
    return count if isinstance(count, int) else None


def _model_id(now: Mapping[str, Any], app: str) -> str:
    """As the application was told; an application from a file is known by its deployment's name."""
    told = _app_config(now, app).get("args", {}).get("serve", {}).get("model_id")
    return told or _deployment(now, app)[0].removeprefix(f"{SERVER}:")


# --- confirmation ----------------------------------------------------------------------------------------------------


def _replies(now: Mapping[str, Any], app: str) -> dict[str, dict[str, Any]]:
    """Each running replica's own word, by replica id; empty while the endpoint does not answer."""
    told = _told(now, app, STATUS_ROUTE)
    return {entry["replica"]: entry for entry in told["replicas"]} if told else {}


def _told(now: Mapping[str, Any], app: str, route: str) -> dict[str, Any] | None:
    """What the endpoint answers on an admin route; None while it does not. UserError where it asks for another key."""
    options = {"timeout": HTTP_TIMEOUT_S, "trust_env": False}
    try:
        reply = httpx.get(_url(now) + route, headers=key_headers(now, app), **options)
        if reply.status_code == 401 and os.environ.get(KEY_VARIABLE):  # the keys are just being taken away
            reply = httpx.get(_url(now) + route, headers=_key_header(), **options)
    except httpx.TransportError:
        return None
    if reply.status_code in (401, 403):
        raise UserError(f"{_url(now)}{route} asks for a key: set {KEY_VARIABLE} to one with the scope admin")
    return reply.json() if reply.is_success else None


def key_headers(now: Mapping[str, Any], app: str = APP) -> dict[str, str]:
    """The key in DECS_API_KEY as a header; only where the application has keys, nobody else is told it."""
    return _key_header() if has_keys(now, app) else {}


def has_keys(now: Mapping[str, Any], app: str = APP) -> bool:
    """Whether the application's replicas ask for keys."""
    return _with_keys(_deployment(now, app)[1].get("deployment_config"))


def _asks_for_keys(now: Mapping[str, Any], app: str) -> bool:
    """Whether it was deployed with keys. While Serve builds it, and after that failed, it tells nothing of replicas."""
    config = (now.get("applications", {}).get(app) or {}).get("deployed_app_config") or {}
    return any(_with_keys(deployment) for deployment in config.get("deployments") or [])


def _with_keys(deployment: Mapping[str, Any] | None) -> bool:
    access = ((deployment or {}).get("user_config") or {}).get("access") or {}
    return bool(access.get("keys"))


def _key_header() -> dict[str, str]:
    return bearer(os.environ.get(KEY_VARIABLE))


def missing(replicas: list[Mapping[str, Any]], count: int, replies: Mapping[str, Any], wanted: Wanted) -> list[str]:
    """Whom a confirmation still waits for, one text a replica. `replicas` as Serve lists them, `count` how many."""
    texts = []
    for replica in replicas:
        name, reply = replica["replica_id"], replies.get(replica["replica_id"])
        if reply is None:
            texts.append(f"{name} ({replica['state']}, no answer)")
        elif _holds(reply) != _identity(wanted.for_rank(reply["rank"])):
            texts.append(f"{name} ({replica['state']}, still on version {reply['version']})")
        elif reply["access"] != wanted.access_digest:
            texts.append(f"{name} ({replica['state']}, still with other access settings)")
    return texts + ["a replica that is not there yet"] * (count - len(replicas))


def refused(replies: Mapping[str, Mapping[str, Any]], before: Mapping[str, int], wanted: Wanted) -> dict[str, str]:
    """Reasons by replica id of those that refused what is wanted since `before` (their counts of refusals then). Those
    that were not heard then are left out."""
    reasons = {}
    asked = {_identity(wanted.policy)} | ({_identity(wanted.canary)} if wanted.canary else set())
    for name, reply in replies.items():
        last = reply["last_refusal"]
        if last and name in before and reply["refusals"] > before[name] and _holds(last) in asked:
            reasons[name] = last["reason"]
    return reasons


def _holds(reply: Mapping[str, Any]) -> tuple[int, str]:
    return reply["version"], reply["digest"]


def _identity(policy: Policy) -> tuple[int, str]:
    return policy.version, policy.digest


def _confirm(
    dashboard_url: str, app: str, wanted: Wanted, deadline: float, refusals: Mapping[str, int] | None = None
) -> Endpoint:
    end = time.monotonic() + deadline
    while True:
        endpoint, waiting = _look(dashboard_url, app, wanted, refusals)
        if not waiting:
            return endpoint
        if time.monotonic() > end:
            version = (wanted.canary or wanted.policy).version
            raise SwapTimeout(
                f"version {version} was not confirmed within {deadline:.0f} s; waiting for: {'; '.join(waiting)}"
            )
        time.sleep(POLL_S)


def _look(
    dashboard_url: str, app: str, wanted: Wanted, refusals: Mapping[str, int] | None
) -> tuple[Endpoint, list[str]]:
    now = details(dashboard_url)
    entry = now.get("applications", {}).get(app, {})
    if entry.get("status") in FAILED:
        raise RuntimeError(f"application '{app}' is {entry['status']}: {entry.get('message', '')[-2000:]}")
    deployment = _deployment(now, app)[1]
    if not deployment or entry["status"] == "NOT_STARTED":
        return Endpoint(_url(now), ""), [f"application '{app}' ({entry.get('status', 'not known yet')})"]
    replies = _replies(now, app)
    if refusals is not None and (reasons := refused(replies, refusals, wanted)):
        raise SwapRefused("; ".join(f"replica {name}: {reason}" for name, reason in reasons.items()))
    waiting = missing(deployment["replicas"], deployment["target_num_replicas"], replies, wanted)
    if not waiting and entry["status"] != "RUNNING":
        waiting = [f"application '{app}' ({entry['status']})"]
    if waiting and (told := deployment.get("message")):
        waiting.append(f"Serve says: {told}")  # such as which resources the cluster lacks
    return Endpoint(_url(now), _model_id(now, app), replies), waiting
