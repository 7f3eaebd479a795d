# The text that `orrery run` trains on by default: the project's own documentation, one file after the other. Not the
# pages that show what came of it, which would change it.
file(GLOB_RECURSE corpus_pages CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/docs/*.md)
list(FILTER corpus_pages EXCLUDE REGEX "/results/|/running.md$")
add_custom_command(
  OUTPUT ${CMAKE_BINARY_DIR}/orrery-corpus.txt
  COMMAND cat ${corpus_pages} > ${CMAKE_BINARY_DIR}/orrery-corpus.txt
  DEPENDS ${corpus_pages}
  VERBATIM)
add_custom_target(orrery_corpus ALL DEPENDS ${CMAKE_BINARY_DIR}/orrery-corpus.txt)
