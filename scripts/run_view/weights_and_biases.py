"""Exports runs to Weights & Biases, with its own package."""
import hashlib
import json
import os

from run_view.logs import LogError
from run_view.tensorboard import tag_of


def import_wandb():
    try:
        import wandb
    except ImportError:
        raise LogError("--wandb needs the package wandb; run pip install wandb, or use --tensorboard, which needs "
                       "no package") from None
    return wandb


def state_path(run):
    return run.path.with_name(run.path.name + ".wandb")


def read_state(path):
    """{id of a run: last step that was exported}."""
    try:
        state = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except ValueError:
        raise LogError(f"{path} is damaged; remove it to export the whole run again") from None
    return state if isinstance(state, dict) else {}


def export(run, project, online):
    """Logs the steps that earlier exports to this project did not log, the latest settings as config, and resume
    points as notes. Returns the number of steps."""
    wandb = import_wandb()
    # The same log maps to the same run. The last exported step is stored next to the log, because offline there
    # is no other record of it.
    origin = f"{project}\n{run.name}\n{run.path.resolve()}"
    identity = hashlib.sha256(origin.encode()).hexdigest()[:16]
    path = state_path(run)
    state = read_state(path)
    last = state.get(identity, -1)
    new_steps = [(step, values) for step, values in run.steps() if step > last]
    if not new_steps:
        return 0
    mode = {"mode": "online", "resume": "allow"} if online else {"mode": "offline"}
    session = wandb.init(project=project, name=run.name, id=identity, dir=str(run.path.parent),
                         notes="\n".join(process.description() for process in run.history.resumes()) or None, **mode)
    settings = {name.removeprefix("--"): value for name, value in run.history.settings().items()}
    if settings:
        session.config.update(settings, allow_val_change=True)
    for step, values in new_steps:
        session.log({tag_of(key): value for key, value in values.items()}, step=step)
    session.finish()
    state[identity] = new_steps[-1][0]
    draft = path.with_name(path.name + ".tmp")
    draft.write_text(json.dumps(state) + "\n")
    os.replace(draft, path)
    return len(new_steps)
