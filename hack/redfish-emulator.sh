#!/usr/bin/env bash
# Installs sushy-tools, whose emulator of a BMC the tests of csp-plugins/redfish run,
# and prints the folder of its programs; see python-env.sh.
exec "$(dirname "$0")/python-env.sh" sushy-tools sushy-tools==2.2.0 bcrypt==5.0.0
