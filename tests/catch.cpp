// Only here so that the precompiled header has a target that it belongs to (tests/CMakeLists.txt).
