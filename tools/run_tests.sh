#!/bin/sh
# Runs the tests of one build folder and ends with "N passed, N failed". Further arguments go to ctest, as does CFABRIC_CTEST.
set -u
build=${1:?usage: run_tests.sh <build folder> [ctest arguments]}
shift
report=$build/test_report.xml
rm -f "$report"
ctest --test-dir "$build" --output-on-failure --no-tests=error --output-junit test_report.xml ${CFABRIC_CTEST:-} "$@"
status=$?
counts=$(sed -n 's/.*<testsuite [^>]*//; s/^[[:space:]]*\(tests\|failures\|disabled\|skipped\)="\([0-9]*\)".*/\1=\2/p' "$report" 2>/dev/null)
value() { printf '%s\n' "$counts" | sed -n "s/^$1=//p" | head -n 1; }
tests=$(value tests) failures=$(value failures) skipped=$(value skipped) disabled=$(value disabled)
tests=${tests:-0} failures=${failures:-0}
left=$((${skipped:-0} + ${disabled:-0}))
[ "$tests" -gt 0 ] || failures=1
printf '%d passed, %d failed, %d skipped\n' $((tests > failures + left ? tests - failures - left : 0)) "$failures" "$left"
exit $status
