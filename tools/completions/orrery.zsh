#compdef orrery
# zsh completion of orrery. Use: copy it as _orrery into a folder of $fpath.

_orrery_set='*--set[replace a value of the file]:key=value:(sequence= global_batch= cluster.nodes= plan.dp= plan.tp= plan.pp= plan.microbatch= plan.zero= plan.recompute=)'

_orrery_scenario() {
  local -a actions=(
    'check:read scenario files and their plans, and name every fault'
    'show:write out what a scenario comes to'
  )
  _arguments -C '--help[print help]' '1:action:->action' '*::argument:->arguments'
  case $state in
    action) _describe action actions ;;
    arguments)
      case $words[1] in
        check) _arguments '--help[print help]' '*:scenario file:_files -g "*.(yaml|yml)"' ;;
        show) _arguments '--help[print help]' "$_orrery_set" '1:scenario file:_files -g "*.(yaml|yml)"' ;;
      esac ;;
  esac
}

_orrery_graph() {
  local -a actions=(
    'check:name everything that is wrong with a graph or trace'
    'explain:show what a graph or trace comes to'
    'dot:draw a graph for Graphviz'
  )
  local -a common=(
    '--help[print help]' '--format[what the file is]:format:(auto scenario hf fx fx-text onnx chakra)'
    '*--dim[size of a symbolic dimension]:NAME=SIZE' '--batch[sequences a step]:number' '--sequence[tokens a sequence]:number'
    '--ranks[ranks that do what the one trace says]:number' '--groups[ranks of the process groups]:file:_files' '*:file:_files'
  )
  _arguments -C '--help[print help]' '1:action:->action' '*::argument:->arguments'
  case $state in
    action) _describe action actions ;;
    arguments)
      case $words[1] in
        check | explain) _arguments $common '--json[write it as JSON]:file:_files' ;;
        dot) _arguments $common '--blocks[one node per block and phase]' '--output[write to this file]:file:_files' ;;
      esac ;;
  esac
}

_orrery_plan() {
  local -a actions=('import:turn the settings of a training framework into a scenario')
  _arguments -C '--help[print help]' '1:action:->action' '*::argument:->arguments'
  case $state in
    action) _describe action actions ;;
    arguments)
      _arguments '--help[print help]' '--format[whose settings they are]:format:(auto megatron nemo torchtitan deepspeed)' \
        '*--var[a variable that the file takes from its environment]:NAME=VALUE' '--run[which run of a script]:number' \
        '--gpus[GPUs in all]:number' '--node[node of the catalogue]:name' '--nodes[nodes of the cluster]:number' \
        "--model[a config.json in place of the file's model]:file:_files" '--output[write to this file]:file:_files' \
        '1:settings file:_files' ;;
  esac
}

_orrery_machine=(
  '--gpu[GPUs of files that do not say it]:name' '--nic[rate of network ports of files that do not say it]:rate'
  '--gpu-bus-ids[GPUs of topology files that leave them to detection]:bus ids'
  "--map-foreign[read other vendors' files as if they were NVIDIA's]" '--help[print help]' '*:file:_files'
)

_orrery_topo() {
  local -a actions=(
    'show:devices, paths between them, and what NCCL makes of them'
    'check:say all that is odd, repaired, assumed or missing in files'
    'convert:write a machine in another form'
    'diff:what differs between two machines or graph files'
    'rings:what each edge of a ring gives, and the best order'
  )
  _arguments -C '--help[print help]' '1:action:->action' '*::argument:->arguments'
  case $state in
    action) _describe action actions ;;
    arguments)
      case $words[1] in
        show | check | diff) _arguments $_orrery_machine ;;
        convert)
          _arguments $_orrery_machine '--to[form of the output]:form:(nccl-topo nccl-graph simgrid dot json)' \
            '--output[write to this file]:file:_files' '--several-nodes[graphs for several such machines]' ;;
        rings)
          _arguments $_orrery_machine "$_orrery_set" '--order[GPUs in the order of the ring]:numbers' '--bytes[size of the all-reduce]:size' \
            '--graph[write a graph file with the best rings]:file:_files' '--json[write figures as JSON]:file:_files' ;;
      esac ;;
  esac
}

_orrery() {
  local state
  local -a commands=(
    'simulate:predict the training step that a scenario file describes'
    'run:train as a scenario file says, on processors or GPUs'
    'memory:show where the memory of ranks goes'
    'scenario:check scenario files, or show what they come to'
    'model:show what a Hugging Face config.json describes'
    'catalogue:list the nodes and GPUs that scenario files can name'
    'validate:hold predictions against a table of measurements'
    'graph:check, explain or draw the graph of a model'
    'partition:compare placements of single ops on the devices of a machine'
    'fabric:compare routings of the network between nodes'
    'placement:compare which GPU, NIC and CPU each rank gets'
    'plan:take over plans from the settings of training frameworks'
    'topo:show, check, convert and compare topologies of machines'
    'collective:time one collective over a sweep of sizes'
    'diagnose:find what holds a machine or a job back'
    'remap:compare what a run does about faults'
    'calibrate:time the processors of this machine and write a profile of them'
    'compare:hold a measured timeline against the predicted one'
  )
  _arguments -C '--help[print help]' '--help-all[print the help of every command]' '--version[print the version]' \
    '1:command:->command' '*::argument:->arguments'
  case $state in
    command) _describe command commands ;;
    arguments)
      case $words[1] in
        simulate)
          _arguments '--help[print help]' '--json[write figures as JSON]:file:_files' \
            '--trace[write a trace for ui.perfetto.dev]:file:_files' '--program[write the Program as text]:file:_files' \
            '--timeline[write when each instruction runs]:file:_files' "$_orrery_set" '--engine[simulation engine]:engine:(fast simgrid both)' '--threads[threads to lower with]:number' \
            '--engine-tolerance[part of the step up to which both engines agree]:fraction' \
            '--passes[rewrites of lowering]:passes:(all none default merge-collectives split-collectives async-collectives split-optimizer)' \
            '--no-fold[simulate every rank]' '--allow-oom[only warn when memory is short]' \
            '--no-interval[leave out how far the step time may be off]' \
            '--verbose[say what was assumed and done]' '1:scenario file:_files -g "*.(yaml|yml)"' ;;
        run)
          _arguments '--help[print help]' '--json[write results as JSON]:file:_files' \
            '--trace[write a trace for ui.perfetto.dev]:file:_files' '--log[write every step as a JSON line]:file:_files' \
            "$_orrery_set" '--steps[steps to train]:number' '--processes[ranks are processes, not threads]' \
            '--watchdog[seconds without a sign of life that end the run]:seconds' '--gemm[who multiplies matrices]:library:(own onednn)' '--pin[each rank on a core of its own]' \
            '--timeline[write when each instruction ran]:file:_files' '--backend[what performs the plan]:backend:(host cuda)' \
            '--plain-launches[with cuda, launch kernel by kernel]' '--time-kernels[with cuda, time each kind of kernel alone]:milliseconds' \
            '--trace-kernels[with cuda, write a trace of every kernel of the last step]:file:_files' \
            '--deterministic[with cuda, sum attention gradients in a fixed order too]' \
            '--algorithm-cache[with cuda, folder of timed algorithms]:folder:_files -/' \
            '--tune[with cuda, how thoroughly algorithms are timed]:how:(quick sustained)' \
            '1:scenario file:_files -g "*.(yaml|yml)"' ;;
        memory)
          _arguments '--help[print help]' '--json[write figures as JSON]:file:_files' \
            '--offsets[with --json, every place in the memory plan]' "$_orrery_set" '--role[show this role]:role' \
            '--all-roles[show every role]' '--threads[threads to lower with]:number' \
            '1:scenario file:_files -g "*.(yaml|yml)"' ;;
        scenario) _orrery_scenario ;;
        graph) _orrery_graph ;;
        plan) _orrery_plan ;;
        topo) _orrery_topo ;;
        collective)
          _arguments $_orrery_machine "$_orrery_set" '--nodes[nodes of this kind]:number' '--fabric[network]:kind:(rail-optimised fat-tree rail-only)' \
            '--kind[the collective]:kind:(all-reduce all-gather reduce-scatter all-to-all broadcast)' \
            '--algorithm[auto is what NCCL chooses]:algorithm:(auto ring tree halving-doubling chain ring-chain hierarchical nvls nvls-tree pat pairwise pxn)' \
            '--begin[smallest size]:size' '--end[largest size]:size' '--factor[from size to size]:number' '--channels[channels]:number' \
            '--chunk[bytes sent at a time]:size' '--both-engines[with SimGrid too]' '--json[write rows as JSON]:file:_files' ;;
        diagnose)
          _arguments $_orrery_machine '--json[write the findings as JSON]:file:_files' "--quiet[leave out the readers' notes]" ;;
        model) _arguments '--help[print help]' '*:config.json:_files' ;;
        catalogue) _arguments '--help[print help]' ;;
        fabric)
          _arguments '--help[print help]' "$_orrery_set" '--json[write figures as JSON]:file:_files' \
            '1:scenario file:_files -g "*.(yaml|yml)"' ;;
        partition)
          _arguments '--help[print help]' "$_orrery_set" '--json[write figures as JSON]:file:_files' \
            '--strategy[the one to look at]:strategy:(all per-layer per-operator nvlink-neighbourhood)' \
            '--min-piece[ops that a piece has at least]:number' '--max-piece[ops that a piece has at most]:number' \
            '1:scenario file:_files -g "*.(yaml|yml)"' ;;
        placement)
          _arguments '--help[print help]' "$_orrery_set" '--json[write figures as JSON]:file:_files' \
            '--policy[the one to look at]:policy:(all file linear round-robin-nodes round-robin-sockets list graph exact)' \
            "--rankfile[write Open MPI's rank file]:file:_files" '--script[write a script that binds each process]:file:_files' \
            '*--host[name of a node, in order]:host:_hosts' "--nic-prefix[of the NICs' names]:prefix" \
            '1:scenario file:_files -g "*.(yaml|yml)"' ;;
        remap)
          _arguments '--help[print help]' "$_orrery_set" '--json[write figures as JSON]:file:_files' \
            '--policy[the one to look at]:policy:(all static re-ring re-group)' '--steps[steps of the run]:number' \
            '1:scenario file:_files -g "*.(yaml|yml)"' ;;
        calibrate)
          _arguments '--help[print help]' "$_orrery_set" \
            '--backend[what to time]:backend:(host)' \
            '(-o --output)'{-o,--output}'[profile file to write]:file:_files' \
            '--ranks[largest group of ranks]:ranks:' \
            '--rounds[how often each kernel is timed]:rounds:' \
            '--cores[cores that ranks may use]:cores:' \
            '--plans-only[without the general sweep]' \
            '*:scenario file:_files -g "*.(yaml|yml)"' ;;
        compare)
          _arguments '--help[print help]' '--json[write figures as JSON]:file:_files' \
            '--threshold[end with 6 above this part of the measured step]:fraction' '--all[list everything]' \
            '1:predicted timeline:_files -g "*.json"' '2:measured timeline:_files -g "*.json"' ;;
        validate)
          _arguments '--help[print help]' '--json[write groups, refusals and rows as JSON]:file:_files' \
            '--markdown[write the tables as Markdown]:file:_files' '--calibrated[fit to one collective of a machine, predict its others]' '--rows[list every predicted row]' \
            '--threshold[end with 6 above this median error]:fraction' '--threads[rows predicted at a time]:number' \
            '1:table:_files -g "*.csv"' ;;
      esac ;;
  esac
}

_orrery "$@"
