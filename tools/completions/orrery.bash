# bash completion of orrery. Use: source tools/completions/orrery.bash
# (or put it into /usr/share/bash-completion/completions/orrery).

_orrery() {
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}
  local command=${COMP_WORDS[1]:-} action=${COMP_WORDS[2]:-} words=""
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    words="simulate run memory scenario model catalogue validate graph partition plan topo diagnose collective fabric placement remap compare calibrate --help --help-all --version"
  elif [[ $command == scenario ]] && ((COMP_CWORD == 2)); then
    words="check show --help"
  elif [[ $command == graph ]] && ((COMP_CWORD == 2)); then
    words="check explain dot --help"
  elif [[ $command == plan ]] && ((COMP_CWORD == 2)); then
    words="import --help"
  elif [[ $command == topo ]] && ((COMP_CWORD == 2)); then
    words="show check convert diff rings --help"
  elif [[ $before == --to ]]; then
    words="nccl-topo nccl-graph simgrid dot json"
  elif [[ $command == plan && $before == --format ]]; then
    words="auto megatron nemo torchtitan deepspeed"
  elif [[ $before == --format ]]; then
    words="auto scenario hf fx fx-text onnx chakra"
  elif [[ $before == --strategy ]]; then
    words="all per-layer per-operator nvlink-neighbourhood"
  elif [[ $before == --policy ]]; then
    if [[ $command == remap ]]; then words="all static re-ring re-group"; else words="all file linear round-robin-nodes round-robin-sockets list graph exact"; fi
  elif [[ $before == --engine ]]; then
    words="fast simgrid both"
  elif [[ $before == --set ]]; then
    words="sequence= global_batch= cluster.nodes= plan.dp= plan.tp= plan.pp= plan.microbatch= plan.zero= plan.recompute="
    if [[ $command == run ]]; then words+=" plan.reduction= training.data= training.steps= training.learning_rate= training.seed="; fi
    compopt -o nospace 2>/dev/null
  elif [[ $word == -* ]]; then
    case "$command $action" in
      simulate*) words="--json --trace --program --timeline --set --engine --engine-tolerance --passes --threads --no-fold --allow-oom --no-interval --verbose --help" ;;
      run*) words="--json --trace --timeline --log --steps --processes --watchdog --gemm --pin --backend --plain-launches --time-kernels --trace-kernels --deterministic --algorithm-cache --tune --set --help" ;;
      memory*) words="--json --offsets --set --role --all-roles --threads --help" ;;
      fabric*) words="--json --set --help" ;;
      partition*) words="--strategy --min-piece --max-piece --json --set --help" ;;
      placement*) words="--policy --json --rankfile --script --host --nic-prefix --set --help" ;;
      remap*) words="--policy --steps --json --set --help" ;;
      calibrate*) words="--backend --output --ranks --rounds --cores --plans-only --set --help" ;;
      compare*) words="--json --threshold --all --help" ;;
      validate*) words="--json --markdown --calibrated --rows --threshold --threads --help" ;;
      "graph dot") words="--blocks --output --format --dim --batch --sequence --ranks --groups --help" ;;
      graph*) words="--json --format --dim --batch --sequence --ranks --groups --help" ;;
      plan*) words="--format --var --run --gpus --node --nodes --model --output --help" ;;
      "topo convert") words="--to --output --several-nodes --gpu --nic --gpu-bus-ids --map-foreign --help" ;;
      "topo rings") words="--order --bytes --graph --json --set --gpu --nic --gpu-bus-ids --map-foreign --help" ;;
      topo*) words="--gpu --nic --gpu-bus-ids --map-foreign --help" ;;
      collective*) words="--nodes --fabric --kind --algorithm --begin --end --factor --channels --chunk --both-engines --json --set --gpu --nic --gpu-bus-ids --map-foreign --help" ;;
      diagnose*) words="--json --quiet --gpu --nic --gpu-bus-ids --map-foreign --help" ;;
      "scenario show") words="--set --help" ;;
      *) words="--help" ;;
    esac
  else
    compopt -o filenames 2>/dev/null
    mapfile -t COMPREPLY < <(compgen -f -- "$word")
    return
  fi
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
}

complete -F _orrery orrery
