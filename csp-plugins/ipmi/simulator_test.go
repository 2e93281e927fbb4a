package main

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/nvidia/nvsentinel/internal/freeport"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

// program is the path of a Debian program; the test fails without it.
func program(t *testing.T, name, pkg string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("%s is missing; hack/packages.sh %s installs it: %v", name, pkg, err)
	}
	return path
}

// simulator is OpenIPMI's BMC, which nobody here wrote, with the machine of one
// node. Its chassis is a script that records its calls.
type simulator struct {
	port int
	dir  string
	cmd  *exec.Cmd
}

// chassis keeps the power in a file and writes down what is set.
const chassis = `#!/bin/sh
cd "$(dirname "$0")"
case "$2 $3" in
"get power") echo "power:$(cat power)" ;;
"get boot") echo "boot:default" ;;
"set power") echo "$4" > power; echo "power $4" >> books ;;
"set reset") echo "reset" >> books ;;
esac
exit 0
`

// simulate starts a BMC. It sends the system's UUID as IPMI wants it: the lowest
// byte first.
func simulate(t *testing.T, id string) *simulator {
	t.Helper()
	tool := program(t, "ipmi_sim", "openipmi")
	dir, err := os.MkdirTemp("", "ipmisim")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	port, err := freeport.Find(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	parsed := uuid.MustParse(id)
	slices.Reverse(parsed[:])
	s := &simulator{port: port, dir: dir}
	for name, text := range map[string]string{
		"power": "1\n", "books": "", "chassis.sh": chassis,
		"bmc.emu": "mc_setbmc 0x20\nmc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02\nsel_enable 0x20 1000 0x0a\nmc_enable 0x20\n",
		"lan.conf": fmt.Sprintf(`name "bmc"
set_working_mc 0x20
  startlan 1
    addr 127.0.0.1 %d
    priv_limit admin
    allowed_auths_callback none
    allowed_auths_user md5
    allowed_auths_operator md5
    allowed_auths_admin md5
    guid %s
  endlan
  user 1 false "" "" user 10
  user 2 true "operator" "secret" operator 10
  chassis_control "%s 0x20"
`, port, hex.EncodeToString(parsed[:]), filepath.Join(dir, "chassis.sh")),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "state"), 0o700); err != nil {
		t.Fatal(err)
	}
	var output bytes.Buffer
	s.cmd = exec.Command(tool, "-c", filepath.Join(dir, "lan.conf"), "-f", filepath.Join(dir, "bmc.emu"), "-s", filepath.Join(dir, "state"), "-n")
	s.cmd.Stdout, s.cmd.Stderr = &output, &output
	if err := testkit.StartChild(s.cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
		if t.Failed() {
			t.Logf("ipmi_sim said:\n%s", &output)
		}
	})
	return s
}

// chassisLog are the lines that the chassis wrote.
func (s *simulator) chassisLog() []string {
	text, _ := os.ReadFile(filepath.Join(s.dir, "books"))
	return strings.Fields(strings.ReplaceAll(string(text), "power ", "power-"))
}

// reboots counts resets, and powers that came back.
func (s *simulator) reboots() int {
	n := 0
	for _, line := range s.chassisLog() {
		if line == "reset" || line == "power-1" {
			n++
		}
	}
	return n
}
