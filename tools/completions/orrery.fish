# fish completion of orrery. Use: copy it to ~/.config/fish/completions/orrery.fish.

set -l commands simulate scenario model catalogue validate
set -l top "not __fish_seen_subcommand_from $commands"
set -l actions "__fish_seen_subcommand_from scenario; and not __fish_seen_subcommand_from check show"
set -l simulate "__fish_seen_subcommand_from simulate"
set -l validate "__fish_seen_subcommand_from validate"

complete -c orrery -l help -d "Print help"
complete -c orrery -n "$top" -f -l help-all -d "Print the help of every command"
complete -c orrery -n "$top" -f -l version -d "Print the version"
complete -c orrery -n "$top" -f -a simulate -d "Predict the training step that a scenario file describes"
complete -c orrery -n "$top" -f -a scenario -d "Check scenario files, or show what they come to"
complete -c orrery -n "$top" -f -a model -d "Show what a Hugging Face config.json describes"
complete -c orrery -n "$top" -f -a catalogue -d "List the nodes and GPUs that scenario files can name"

complete -c orrery -n "$top" -f -a validate -d "Hold predictions against a table of measurements"

complete -c orrery -n "$actions" -f -a check -d "Read scenario files and their plans, and name every fault"
complete -c orrery -n "$actions" -f -a show -d "Write out what a scenario comes to"

complete -c orrery -n "$simulate" -r -l json -d "Write the figures as JSON; - is standard output"
complete -c orrery -n "$simulate" -r -l trace -d "Write a trace for ui.perfetto.dev"
complete -c orrery -n "$simulate" -r -l program -d "Write the Program as text"
complete -c orrery -n "$simulate" -x -l engine -a "fast simgrid both" -d "Simulation engine"
complete -c orrery -n "$simulate" -x -l threads -d "Threads to lower with"
complete -c orrery -n "$simulate" -l no-fold -d "Simulate every rank, also equal ones"
complete -c orrery -n "$simulate" -l allow-oom -d "Only warn when memory is short"
complete -c orrery -n "$simulate" -l no-interval -d "Leave out how far the step time may be off"
complete -c orrery -n "$simulate" -l verbose -d "Say what was assumed and done"
complete -c orrery -n "$validate" -r -l json -d "Write groups, refusals and rows as JSON"
complete -c orrery -n "$validate" -r -l markdown -d "Write the tables as Markdown"
complete -c orrery -n "$validate" -l rows -d "List every predicted row"
complete -c orrery -n "$validate" -x -l threshold -d "End with 6 when the median error exceeds this fraction"
complete -c orrery -n "$validate" -x -l threads -d "Rows predicted at a time"
complete -c orrery -n "__fish_seen_subcommand_from simulate show" -x -l set -d "Replace a value: KEY=VALUE" \
  -a "sequence= global_batch= cluster.nodes= plan.dp= plan.tp= plan.pp= plan.microbatch= plan.zero= plan.recompute="
