#include "app/options/other_names.hpp"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>

namespace lockstep::app {
namespace {

struct OtherName {
  std::string_view words;           ///< separated by blanks
  std::string_view ours;            ///< options by preference, separated by commas; a value may follow a blank
  std::string_view otherwise = {};  ///< sentence for commands without any of them
};

constexpr std::string_view kRanks =
    "ranks are started by the launcher: `mpirun -np N lockstep ...`, one rank for each GPU or core";
constexpr std::string_view kServers =
    "the launcher starts all ranks: `mpirun -np N lockstep train ... --agree async --servers S` makes S of them "
    "servers";
constexpr std::string_view kPlaces = "there is nothing to set: a run prints the host and device of each rank";
constexpr std::string_view kReaders = "there is nothing to set: each rank reads ahead in a thread of its own";

// Sources: TensorFlow's and PaddlePaddle's tutorials, PyTorch's examples and torchrun, Lightning, Hugging Face, timm,
// fairseq, nanoGPT, Keras, Horovod, Caffe, sklearn.
constexpr OtherName kOtherNames[] = {
    // amount of work
    {"num-epochs n-epochs nepochs max-epochs max-epoch num-train-epochs nb-epoch total-epochs ep passes", "epochs"},
    {"iterations iters iter max-iters max-iter num-iterations max-steps num-steps n-steps max-updates max-update "
     "train-steps num-train-steps max-train-steps train-iters",
     "steps,repeat"},
    {"batch-size batchsize bs mini-batch minibatch mini-batch-size micro-batch-size train-batch-size "
     "per-device-train-batch-size per-gpu-batch-size",
     "batch,evaluation-batch"},
    {"global-batch-size total-batch-size effective-batch-size", "global-batch"},
    {"gradient-accumulation-steps gradient-accumulation grad-accum accum-iter accum-steps accumulate-grad-batches "
     "update-freq batches-per-allreduce",
     "accumulate"},
    {"random-seed random-state manual-seed rng-seed", "seed"},
    {"deterministic use-deterministic-algorithms", "reproducible"},
    {"early-stopping early-stop early-stopping-patience", "patience"},
    {"max-time walltime wall-time time-budget", "time-limit"},
    // ranks and devices
    {"gpus num-gpus ngpus n-gpus gpus-per-node devices gpu-ids device-ids nproc nprocs np num-proc nproc-per-node "
     "num-processes num-procs world-size ranks num-ranks nnodes num-nodes nodes hosts local-rank rank node-rank "
     "master-addr master-port rdzv-endpoint dist-url distributed ddp",
     "", kRanks},
    {"job-name task-index task-id ps-hosts worker-hosts num-ps ps-num pserver-endpoints pserver-ips trainers "
     "trainer-id "
     "trainer-num",
     "", kServers},
    {"sync-replicas replicas-to-aggregate num-backup-workers sync-mode async-mode is-async use-async sync async",
     "agree"},
    {"log-device-placement", "", kPlaces},
    {"allow-soft-placement soft-placement", "device auto"},
    {"gpu cuda use-cuda use-gpu", "device gpu", kRanks},
    {"no-cuda no-gpu use-cpu cpu", "device cpu"},
    {"accelerator", "device"},
    {"workers num-workers n-workers nworkers dataloader-num-workers data-workers prefetch prefetch-factor pin-memory "
     "num-data-workers",
     "", kReaders},
    {"num-threads nthreads n-threads cpus omp-threads n-jobs jobs", "threads"},
    {"dist-backend comm-backend", "transport"},
    {"amp fp16 bf16 half mixed-precision use-amp autocast", "precision bf16"},
    {"dtype", "precision"},
    {"fsdp zero zero-stage deepspeed", "shard-optimizer"},
    {"fp16-allreduce compression gradient-compression", "wire"},
    // data
    {"dataset dataset-path dataset-dir data-dir data-path data-root dataroot train-data train-file "
     "training-data train-path datadir",
     "data,x"},
    {"input inputs input-file in file source images", "x,data"},
    {"labels label targets target", "y"},
    {"val valid valid-data val-data val-dir validation-data validation-file eval-data test-data test-dir dev-data "
     "val-split validation-split val-fraction validation-fraction test-size",
     "validation,data"},
    {"normalization normalisation standardize standardise scaler", "normalize"},
    {"augmentation aug data-augmentation transform transforms", "augment"},
    {"delimiter delim sep", "separator"},
    // network
    {"arch architecture network net model-name model-type", "model"},
    {"hidden-size hidden-sizes hidden-dim hidden-units hidden-layers hidden-layer-sizes units nhid", "hidden,width"},
    {"d-model n-embd embed-dim embedding-dim emb-size n-embed", "width,hidden"},
    {"num-layers n-layer n-layers nlayers num-hidden-layers", "layers"},
    {"num-heads n-head n-heads nhead attention-heads", "heads"},
    {"seq-len seq-length sequence-length max-length max-seq-length max-seq-len block-size context-length ctx-len",
     "context"},
    {"bptt", "unroll"},
    {"drop drop-rate dropout-rate dropout-prob p-drop keep-prob keep-probability", "dropout"},
    {"act nonlinearity activation-function", "activation"},
    {"criterion loss-function loss-fn objective", "loss"},
    {"init init-scale initializer weight-initializer kernel-initializer", "weight-init"},
    {"pretrained pretrained-model finetune finetune-from init-from load-weights", "initialize-from,checkpoint"},
    // optimiser and learning rate
    {"opt optim solver", "optimizer"},
    {"lr base-lr initial-lr initial-learning-rate start-learning-rate starter-learning-rate init-lr max-lr eta "
     "learning-rate-init alpha",
     "learning-rate"},
    {"lr-scheduler lr-schedule scheduler lr-policy lr-decay lr-scheduler-type sched decay-lr", "schedule"},
    {"warmup warmup-iters num-warmup-steps warmup-updates warmup-epochs warmup-ratio", "warmup-steps"},
    {"min-lr end-learning-rate min-learning-rate end-lr eta-min final-lr lr-end", "final-learning-rate"},
    {"gamma lr-gamma lr-decay-factor learning-rate-decay-factor", "decay-rate"},
    {"step-size lr-step-size num-epochs-per-decay lr-decay-steps", "decay-steps"},
    {"decay-staircase", "staircase"},
    {"l2-regularizer l2-regularization l2-reg l2-loss regularization-rate l2-decay", "l2"},
    {"l1 l1-regularizer l1-regularization", "", "there is no L1 regularisation; --l2 and --weight-decay exist"},
    {"milestones lr-steps lr-milestones", "boundaries"},
    {"wd decay", "weight-decay"},
    {"adam-beta1", "beta1"},
    {"adam-beta2", "beta2"},
    {"eps adam-epsilon opt-eps", "epsilon"},
    {"grad-clip clip clip-grad clip-grad-norm max-grad-norm gradient-clip gradient-clipping gradient-clip-val",
     "clip-norm"},
    {"smoothing", "label-smoothing"},
    {"class-weights", "class-weight"},
    {"sampler oversample oversampling resample balanced-sampling class-balanced-sampling", "sampling"},
    {"sample-weights weight-column", "sample-weight"},
    {"monitor metric-for-best-model eval-metric", "best-by"},
    {"moving-average-decay ema ema-decay model-ema swa polyak", "average-decay"},
    // input and output paths
    {"output output-file outfile o destination dest", "out,json,csv,run"},
    {"output-dir out-dir outdir output-path save-path", "out,run,folder"},
    {"save save-dir run-name run-dir exp exp-name experiment experiment-name name project log-dir logdir log-path "
     "logging-dir work-dir workdir checkpoint-dir ckpt-dir checkpoint-path save-model train-dir model-dir model-path",
     "run"},
    {"overwrite overwrite-output-dir", "force"},
    {"resume-from resume-from-checkpoint resume-path restart continue load load-checkpoint restore restore-file",
     "resume,checkpoint"},
    {"ckpt ckpt-path checkpoint-file snapshot", "checkpoint,resume"},
    {"save-every save-interval save-steps save-freq checkpoint-interval checkpoint-freq ckpt-every snapshot-every",
     "checkpoint-every"},
    {"save-total-limit max-checkpoints keep-checkpoints max-to-keep keep-last-epochs", "keep"},
    {"save-best save-best-only load-best-model-at-end", "keep-best"},
    {"log-interval log-every log-steps logging-steps print-freq print-every log-freq disp-freq display",
     "report-every"},
    {"eval-interval eval-every eval-steps eval-freq val-interval val-every validate-every validate-interval "
     "test-interval evaluation-strategy",
     "evaluate-every"},
    {"eval-batch-size val-batch-size test-batch-size per-device-eval-batch-size eval-batch", "evaluation-batch,batch"},
    {"tb tensorboard-dir tensorboard-logdir", "tensorboard"},
    {"cfg conf config-file yaml params hparams", "config"},
    // generate
    {"max-new-tokens max-tokens num-tokens n-tokens gen-length length", "tokens"},
    {"num-return-sequences num-samples n-samples", "samples"},
    {"temp", "temperature"},
    {"start start-text text primer prime context-text", "prompt"},
    {"iters-to-time runs reps repeats repetitions", "repeat"},
};

std::string lower_with_dashes(std::string_view word) {
  std::string text(word);
  for (char& c : text) c = c == '_' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

/// Returns the items of `list` that are not empty.
std::vector<std::string_view> parts_of(std::string_view list, char separator) {
  std::vector<std::string_view> parts;
  while (!list.empty()) {
    const std::size_t end = std::min(list.find(separator), list.size());
    if (end > 0) parts.push_back(list.substr(0, end));
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return parts;
}

}  // namespace

std::optional<std::string> hint_from_other_programs(std::string_view word, std::span<const std::string> valid,
                                                    std::string_view prefix) {
  const std::string wanted = lower_with_dashes(word);
  for (const OtherName& other : kOtherNames) {
    const std::vector<std::string_view> words = parts_of(other.words, ' ');
    if (std::ranges::find(words, wanted) == words.end()) continue;
    for (const std::string_view ours : parts_of(other.ours, ',')) {
      if (std::ranges::find(valid, ours.substr(0, ours.find(' '))) == valid.end()) continue;
      return fmt::format("; did you mean {}{}?", prefix, ours);
    }
    return other.otherwise.empty() ? std::string() : fmt::format("; {}", other.otherwise);
  }
  return std::nullopt;
}

std::vector<std::string_view> names_in_other_programs() {
  std::vector<std::string_view> all;
  for (const OtherName& other : kOtherNames) {
    const std::vector<std::string_view> words = parts_of(other.words, ' ');
    all.insert(all.end(), words.begin(), words.end());
  }
  return all;
}

}  // namespace lockstep::app
