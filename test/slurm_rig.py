"""A Slurm of one machine for tests: packages of Debian or Ubuntu that are only unpacked, without munge, and daemons that
end with the test.
"""
import os
import re
import shutil
import socket
import subprocess
import time
from pathlib import Path

from free_ports import free_ports
from runner import Skip, expect

PACKAGES = ["slurmctld", "slurmd", "slurm-client", "slurm-wlm-basic-plugins"]
# Requeued jobs wait until credentials of their former start have expired: cred_expire, in seconds.
CONFIG = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
AuthType=auth/none
AuthInfo=cred_expire=5
CredType=cred/none
PluginDir={plugins}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
KillWait=10
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
NodeName={host} NodeAddr=127.0.0.1 CPUs=8
PartitionName=main Nodes={host} Default=YES PriorityTier=1 GraceTime=30
PartitionName=urgent Nodes={host} PriorityTier=2 PreemptMode=OFF
"""


def unpack(folder):
    """Unpacks the packages into folder/root. Returns it."""
    for tool in ("apt-get", "dpkg"):
        if shutil.which(tool) is None:
            raise Skip(f"{tool} is missing: the test unpacks Slurm's Debian packages")
    done = subprocess.run(["apt-get", "download", *PACKAGES], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Skip(f"the packages of Slurm cannot be downloaded: {done.stderr.strip().splitlines()[-1:]}")
    root = folder / "root"
    for package in sorted(folder.glob("*.deb")):
        subprocess.run(["dpkg", "-x", package, root], check=True)
    return root


class Slurm:
    """The daemons, while the object is used in a `with`. `run` calls its programs in a folder."""

    def __init__(self, folder):
        self.folder = folder / "slurm"
        for name in ("state", "spool"):
            (self.folder / name).mkdir(parents=True)
        root = unpack(self.folder)
        plugins = next(root.rglob("auth_none.so")).parent
        self.environment = {key: value for key, value in os.environ.items() if key == "OMPI_MCA_odls_base_sigkill_timeout" or not key.startswith(("SLURM_", "OMPI_", "PMI"))}
        self.environment |= {"SLURM_CONF": str(self.folder / "slurm.conf"), "LD_LIBRARY_PATH": str(plugins),
                             "PATH": f"{root}/usr/bin:{os.environ['PATH']}", "OPENBLAS_NUM_THREADS": "1"}
        self.programs = {name: next((root / "usr/sbin").glob(name + "*")) for name in ("slurmctld", "slurmd", "slurmstepd")}
        for program in (*self.programs.values(), root / "usr/bin/srun", plugins / "mpi_pmix.so"):
            libraries = subprocess.run(["ldd", program], env=self.environment, capture_output=True, text=True, check=False)
            missing = re.findall(r"(\S+) => not found", libraries.stdout)
            if missing:
                raise Skip(f"{program.name} needs {', '.join(missing)}, which this machine lacks")
        (self.folder / "slurm.conf").write_text(CONFIG.format(
            host=socket.gethostname().split(".")[0], ports=free_ports(2), plugins=plugins, folder=self.folder,
            user=subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()))
        self.daemons = []

    def __enter__(self):
        for name, arguments in (("slurmctld", ["-D", "-c"]), ("slurmd", ["-D", "-d", self.programs["slurmstepd"]])):
            with open(self.folder / f"{name}.out", "wb") as out:
                self.daemons.append(subprocess.Popen([self.programs[name], *arguments], env=self.environment, stdout=out,
                                                     stderr=out, stdin=subprocess.DEVNULL))
        try:
            self.wait("the machine is idle", lambda: "idle" in self.run(self.folder, "sinfo", "-h", code=None), 30)
        except BaseException:
            self.end_daemons()
            raise
        return self

    def __exit__(self, *_):
        try:
            for job in self.run(self.folder, "squeue", "-h", "-o", "%i", code=None).split():
                self.run(self.folder, "scancel", job, code=None)
            self.wait("no job runs", lambda: not self.run(self.folder, "squeue", "-h", code=None), 30)
        finally:
            self.end_daemons()

    def end_daemons(self):
        for daemon in reversed(self.daemons):
            daemon.terminate()
        for daemon in self.daemons:
            try:
                daemon.wait(timeout=20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()

    def run(self, folder, *words, code=0, **variables):
        """Runs a program, with this exit code unless `code` is None. Returns its output."""
        done = subprocess.run([str(word) for word in words], cwd=folder, env={**self.environment, **variables},
                              capture_output=True, text=True, timeout=120, check=False)
        expect(code is None or done.returncode == code, f"{words}: exit code {done.returncode}: {done.stdout}{done.stderr}")
        return done.stdout

    def submit(self, folder, *words, **variables):
        """Returns the number of the job."""
        return re.search(r"Submitted batch job (\d+)", self.run(folder, "sbatch", *words, **variables))[1]

    def job(self, number):
        """The state of a job, and how often it was requeued."""
        text = self.run(self.folder, "scontrol", "show", "job", number)
        return re.search(r"JobState=(\w+)", text)[1], int(re.search(r"Restarts=(\d+)", text)[1])

    def wait(self, name, condition, seconds=120):
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                logs = "".join(path.read_text(errors="replace")[-1500:] for path in Path(self.folder).glob("*.log"))
                raise AssertionError(f"not within {seconds} s: {name}\n{logs}")
            time.sleep(0.3)

    def wait_for_end(self, number):
        """Waits until a job has ended and is not requeued. Returns its state and restarts."""
        self.wait(f"job {number} ends", lambda: self.job(number)[0] in ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT"))
        return self.job(number)
