#!/usr/bin/env bash
# The other scripts as shipped: check, all-reduce, scale, a sweep, a chain.
# seconds: 1200
. "$(dirname "$0")/harness.sh"
pack_small data/train
cluster_start 3
options=(--data data --optimizer sgd --batch 20 --report-every 50 --progress off --checkpoint-every -1)
export LOCKSTEP_LAUNCHER=mpirun

check "all-reduce over two nodes"
submit all-reduce --nodes=2 "$tree/slurm/all-reduce.sbatch" --max 1000 --repeat 2 --device cpu
finish_job 120
expect_state COMPLETED
expect_file "all-reduce-$job_number/all-reduce.csv"
expect_file "all-reduce-$job_number/all-reduce.json"
expect_file "all-reduce-$job_number/all-reduce.svg"

check "scaling over two nodes"
submit scale --nodes=2 --ntasks-per-node=2 --time=5 "$tree/slurm/scale.sbatch" --features 64 --hidden 64 --batch 16 --warmup 1 \
  --repeat 5 --device cpu
finish_job 120
expect_state COMPLETED
expect_out '^ +4 '; expect_out 'efficiency'
for suffix in csv json svg; do expect_file "scale-$job_number/scale.$suffix"; done
unset LOCKSTEP_LAUNCHER

check "two threads to a rank, bound to its two cores"
export LOCKSTEP_LAUNCHER=mpirun
submit threads --nodes=2 --ntasks-per-node=1 --cpus-per-task=2 --time=5 "$tree/slurm/train.sbatch" "${options[@]}" --steps 20 \
  --run runs/threads
finish_job 120
unset LOCKSTEP_LAUNCHER
expect_state COMPLETED
expect_out 'by mpirun --map-by slot:PE=2 --bind-to core'
expect_out 'n1 .*cpu \(2 threads\) +0-1'

check "a PMI that this MPI does not know, and one that Slurm does not: mpirun, and why"
export LOCKSTEP_PMI="pmi2 pmi7"
submit pmi --nodes=2 --ntasks-per-node=1 --time=5 "$tree/slurm/train.sbatch" "${options[@]}" --steps 20 --run runs/pmi
finish_job 120
unset LOCKSTEP_PMI
expect_state COMPLETED
expect_out 'by mpirun --bind-to core: two ranks tried with srun --mpi=pmi2 did not find each other.*; srun --mpi=list has no pmi7'
expect_out 'done at step 20'

check "Open MPI's files lie in a folder of the job's own on every node, and none stays there"
cat >folders <<'END'
#!/bin/sh
[ "$1" = --version ] || echo "$(hostname) $OMPI_MCA_orte_tmpdir_base $(ls "$OMPI_MCA_orte_tmpdir_base")"
END
chmod +x folders
on_login env LOCKSTEP="$PWD/folders" LOCKSTEP_LAUNCHER=mpirun timeout 120 salloc --nodes=3 --ntasks-per-node=1 "$tree/slurm/launch" \
  train >out 2>err
status=$?
expect_status 0
for node in n1 n2 n3; do
  expect_out "^$node /tmp/lockstep\.[^ ]+ ompi\.$node\."
  [ -z "$(on_node $node find /tmp -maxdepth 1 -name 'lockstep.*')" ] || failed "$node: $(on_node $node ls /tmp)"
done

check "by hand in an allocation"
for launcher in srun mpirun; do
  on_login env LOCKSTEP_LAUNCHER=$launcher timeout 120 salloc --nodes=3 --ntasks-per-node=2 "$tree/slurm/launch" train "${options[@]}" \
    --steps 20 --run runs/salloc-$launcher >out 2>err
  status=$?
  expect_status 0; expect_out 'n3 '; expect_out 'done at step 20'
done

check "outside of Slurm"
env -u SLURM_JOB_ID "$tree/slurm/launch" train >out 2>err
status=$?
expect_status 2; expect_err 'this is no Slurm job'

check "the check, by itself"
submit check --nodes=3 --ntasks-per-node=1 "$tree/slurm/check.sbatch" --seconds 2 --data data --model mlp --batch 20
finish_job 120
for node in n1 n2 n3; do expect_out "$node"; done
expect_out '^((NOT )?OK|BUSY)' # its findings about the network depend on other work on this machine

check "the check before a job, which goes on"
export LOCKSTEP_CHECK=yes
submit checked --nodes=2 --ntasks-per-node=1 --time=5 "$tree/slurm/train.sbatch" "${options[@]}" --steps 20 --run runs/checked
finish_job 120
says '^NOT OK' || { expect_state COMPLETED; expect_out 'done at step 20'; }

check "the check before a job, which does not begin when it fails"
submit unchecked --nodes=2 --ntasks-per-node=1 --time=5 "$tree/slurm/train.sbatch" --batch 20 --data nowhere --run runs/unchecked
finish_job 120
expect_state FAILED; expect_out 'nowhere'
expect_no_file runs/unchecked
unset LOCKSTEP_CHECK

check "a sweep: a run for each line"
cat >settings.txt <<'END'
# learning rate and width

--learning-rate 0.1 --hidden 8
--learning-rate 0.01 --hidden 8,8
END
submit sweep --array=1-3 --output=sweep-%a.log "$tree/slurm/sweep.sbatch" settings.txt "${options[@]}" --steps 20 --run runs/sweep
: >sweep.log
finish_job 200
expect grep -q 'done at step 20' sweep-1.log
expect grep -q 'done at step 20' sweep-2.log
expect grep -Eq 'hidden *= *8,8' runs/sweep/2/config.ini
expect grep -q 'has 2 lines of settings; there is no line 3' sweep-3.log

check "successive halving: two tasks of an array share the lines"
pack_small data/validation
submit halving --array=1-2 --output=halving-%a.log "$tree/slurm/sweep.sbatch" settings.txt "${options[@]}" --halving --steps 40 --run runs/halving
: >halving.log
finish_job 200
expect grep -q '^1\. ' halving-1.log
expect grep -q '^1\. ' halving-2.log
[ "$(cat runs/halving/[12]/metrics.jsonl | grep -c '"how":"done"')" = 1 ] || failed "not one of two has come through"
rm -r data/validation

check "a sweep that is no array"
submit lonely "$tree/slurm/sweep.sbatch" settings.txt "${options[@]}" --run runs/lonely
finish_job 60
expect_state FAILED; expect_out 'no job array'

check "a chain: the next job goes on where one has stopped, the last ones have nothing to do"
works_until chain told
numbers=$(on_login "$tree/slurm/chain" 3 --nodes=3 --ntasks-per-node=2 --time=5 --output=chain.log "$tree/slurm/train.sbatch" \
  --config chain.ini "${options[@]}" --run runs/chain)
[ "$(wc -l <<<"$numbers")" = 3 ] || failed "not three jobs: $numbers"
name=chain job_number=$(head -n 1 <<<"$numbers")
on_login scontrol hold $(tail -n 2 <<<"$numbers") # until their work is finite
stop_and_end_soon chain --signal=USR1 --batch
on_login scontrol release $(tail -n 2 <<<"$numbers")
finish_job 120
expect_state COMPLETED
expect_out 'stopped early with a checkpoint; the next job of the chain goes on'
for job_number in $numbers; do finish_job 120; expect_state COMPLETED; done
expect_out "done at step $(($(stopped_at 1) + 20))"
expect_out 'nothing is left to do'
expect_weights_of_an_unbroken_run chain

check "a chain whose first job fails ends there"
numbers=$(on_login "$tree/slurm/chain" 2 --nodes=1 --output=broken.log "$tree/slurm/train.sbatch" --stpes 5 --run runs/broken)
name=broken
for job_number in $numbers; do finish_job 120; done
expect_state CANCELLED

check "a chain of none"
on_login "$tree/slurm/chain" none >out 2>err
status=$?
expect_status 2; expect_err 'slurm/chain N'
