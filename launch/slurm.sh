#!/usr/bin/env bash
# Trains in a job of Slurm: starts one torchrun on each node of the job, and each torchrun starts the ranks of its node.
#
#     sbatch --nodes=2 --gpus-per-node=4 launch/slurm.sh dataset=pubmed scheme=1d run_dir=runs/mine
#     sbatch launch/slurm.sh fullgnn.predict checkpoint=runs/mine
#
# Arguments are overrides of fullgnn.train, or of the module of fullgnn that the first one names. Inside of salloc the
# script is called without sbatch. docs/slurm.md explains it.
#
# Lines with one # before SBATCH are options of sbatch, which options of the command line replace. Those with two are
# examples: take one # away, or give the option to sbatch.
#SBATCH --job-name=fullgnn
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
##SBATCH --cpus-per-task=16
##SBATCH --gpus-per-node=4
##SBATCH --time=04:00:00
# Slurm repeats a signal that it has sent to the job, and the time limit ends the job. So the ranks are asked to stop
# 120 seconds earlier: they finish their epoch and write a checkpoint.
#SBATCH --signal=TERM@120
# A job that is requeued continues one log.
#SBATCH --open-mode=append
set -euo pipefail
if [ -z "${SLURM_JOB_ID:-}" ]; then
    echo "error: there is no job of Slurm here: start this script with sbatch launch/slurm.sh, or inside of salloc" >&2
    exit 1
fi
module=fullgnn.train
case "${1:-}" in
    fullgnn.*=*) ;;
    fullgnn.*)
        module=$1
        shift
        ;;
esac
# The Python: $PYTHON, or .venv in the folder in which sbatch was called, or the first on the PATH of that shell.
python="${PYTHON:-python3}"
if [ -z "${PYTHON:-}" ] && [ -x .venv/bin/python ]; then
    python=.venv/bin/python
fi
nodes=$SLURM_JOB_NUM_NODES
ranks=${RANKS_PER_NODE:-${SLURM_GPUS_ON_NODE:-1}} # without GPUs: RANKS_PER_NODE=2 sbatch launch/slurm.sh ...
hosts=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
host=${hosts%%$'\n'*} # the ranks of all nodes meet on the first node
port=$((15000 + SLURM_JOB_ID % 15000)) # jobs that share a node have different ports, below those that systems give away
# srun that gets SIGTERM kills the ranks at once, and so may Ctrl-C. In their place, Slurm asks the ranks to stop.
trap 'scancel --signal=TERM "$SLURM_JOB_ID"' TERM INT
# The one task of a node may use all cores of the job there.
srun --nodes="$nodes" --ntasks="$nodes" --ntasks-per-node=1 --cpu-bind=none \
    "$python" -m torch.distributed.run --nnodes="$nodes" --nproc-per-node="$ranks" \
    --rdzv-backend=c10d --rdzv-endpoint="$host:$port" --rdzv-id="$SLURM_JOB_ID" -m "$module" "$@" &
step=$!
status=0
wait "$step" || status=$?
while kill -0 "$step" 2> /dev/null; do # a signal has ended wait, and srun still runs
    status=0
    wait "$step" || status=$?
done
exit "$status"
