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

_orrery() {
  local state
  local -a commands=(
    'simulate:predict the training step that a scenario file describes'
    'scenario:check scenario files, or show what they come to'
    'model:show what a Hugging Face config.json describes'
    'catalogue:list the nodes and GPUs that scenario files can name'
    'validate:hold predictions against a table of measurements'
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
            "$_orrery_set" '--engine[simulation engine]:engine:(fast simgrid both)' '--threads[threads to lower with]:number' \
            '--no-fold[simulate every rank]' '--allow-oom[only warn when memory is short]' \
            '--no-interval[leave out how far the step time may be off]' \
            '--verbose[say what was assumed and done]' '1:scenario file:_files -g "*.(yaml|yml)"' ;;
        scenario) _orrery_scenario ;;
        model) _arguments '--help[print help]' '*:config.json:_files' ;;
        catalogue) _arguments '--help[print help]' ;;
        validate)
          _arguments '--help[print help]' '--json[write groups, refusals and rows as JSON]:file:_files' \
            '--markdown[write the tables as Markdown]:file:_files' '--rows[list every predicted row]' \
            '--threshold[end with 6 above this median error]:fraction' '--threads[rows predicted at a time]:number' \
            '1:table:_files -g "*.csv"' ;;
      esac ;;
  esac
}

_orrery "$@"
