package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nvidia/nvsentinel/csp-plugins/internal/bmc"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

const machine = "node://gpu-1"

// noResponse is what ipmitool 1.8.19 prints when a request is not answered.
const noResponse = "Unable to send RAW command (channel=0x0 netfn=0x0 lun=0x0 cmd=0x2)\n"

// refused is what ipmitool 1.8.19 prints for a completion code.
func refused(code byte, text string) string {
	return fmt.Sprintf("Unable to send RAW command (channel=0x0 netfn=0x0 lun=0x0 cmd=0x2 rsp=0x%x): %s\n", code, text)
}

// How ipmitool ends shows what was done.
func TestAnswered(t *testing.T) {
	const noise = "Get HPM.x Capabilities request failed, compcode = d4\n"
	for _, tt := range []struct {
		name string
		o    outcome
		want codes.Code
	}{
		{"done", outcome{stdout: "\n"}, codes.OK},
		{"done, with a remark", outcome{stdout: "\n", stderr: noise}, codes.OK},
		{"no bytes", outcome{stdout: "Password: "}, codes.Unavailable},
		{"not started", outcome{notStarted: os.ErrNotExist}, codes.Aborted},
		{"killed", outcome{killed: true, stderr: noise}, codes.DeadlineExceeded},
		{"no session", outcome{exit: 1, stderr: "Error: Unable to establish IPMI v2 / RMCP+ session\n"}, codes.Aborted},
		{"no such host", outcome{exit: 1, stderr: "Address lookup for nohost.invalid failed\nCould not open socket!\n"}, codes.Aborted},
		{"another cipher suite", outcome{exit: 1, stderr: "Error in open session response message : invalid authentication algorithm\n\nError: Unable to establish IPMI v2 / RMCP+ session\n"}, codes.Aborted},
		{"no response", outcome{exit: 1, stderr: noResponse}, codes.Unavailable},
		{"no response, with a remark", outcome{exit: 1, stderr: noise + noResponse}, codes.Unavailable},
		{"busy", outcome{exit: 1, stderr: refused(0xc0, "Node busy")}, codes.ResourceExhausted},
		{"invalid command", outcome{exit: 1, stderr: refused(0xc1, "Invalid command")}, codes.FailedPrecondition},
		{"timeout", outcome{exit: 1, stderr: refused(0xc3, "Timeout")}, codes.Unavailable},
		{"invalid field", outcome{exit: 1, stderr: refused(0xcc, "Invalid data field in request")}, codes.FailedPrecondition},
		{"no response could be provided", outcome{exit: 1, stderr: refused(0xce, "Command response could not be provided")}, codes.Unavailable},
		{"being initialized", outcome{exit: 1, stderr: refused(0xd2, "BMC initialization in progress")}, codes.Aborted},
		{"privilege", outcome{exit: 1, stderr: noise + refused(0xd4, "Insufficient privilege level")}, codes.PermissionDenied},
		{"state", outcome{exit: 1, stderr: refused(0xd5, "Command not supported in present state")}, codes.Aborted},
		{"unspecified", outcome{exit: 1, stderr: refused(0xff, "Unspecified error")}, codes.Unavailable},
		{"a code that is not known", outcome{exit: 1, stderr: refused(0x80, "Unknown (0x80)")}, codes.Unavailable},
		{"the words of a code alone", outcome{exit: 1, stderr: "Insufficient privilege level"}, codes.Unavailable},
		{"something else", outcome{exit: 1, stderr: "Segmentation fault"}, codes.Unavailable},
		{"nothing at all", outcome{exit: 1}, codes.Unavailable},
	} {
		if _, err := answered(hardReset, tt.o); status.Code(err) != tt.want {
			t.Errorf("%s: %v, want %s", tt.name, err, tt.want)
		}
	}
}

func FuzzAnswered(f *testing.F) {
	f.Add(" 01 00 00 54\n", "", 0)
	f.Add("", refused(0xd4, "Insufficient privilege level"), 1)
	f.Add("", noResponse, 1)
	f.Fuzz(func(t *testing.T, stdout, stderr string, exit int) {
		answer, err := answered(powerStatus, outcome{stdout: stdout, stderr: stderr, exit: exit})
		switch {
		case exit != 0 && err == nil:
			t.Errorf("exit %d with %q is no error", exit, stderr)
		case err == nil && !strings.EqualFold(hex.EncodeToString(answer), strings.Join(strings.Fields(stdout), "")):
			t.Errorf("%q is read as %x", stdout, answer)
		case err != nil && len(err.Error()) > 4*bmc.MaxText:
			t.Errorf("an error of %d bytes", len(err.Error()))
		}
	})
}

// tool makes a driver whose ipmitool is a shell script; $1 is the command that is
// sent, without blanks, and the arguments go to the file calls.
func tool(t *testing.T, script string, change func(*BMC)) (*Driver, string) {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, "username", "operator", 0o600)
	write(t, dir, "password", "secret", 0o600)
	write(t, dir, "ipmitool", "#!/bin/sh\ncd "+dir+"\necho \"$*\" >> calls\nsent=${*##* raw }\n"+script, 0o755)
	c := Default()
	c.Program = filepath.Join(dir, "ipmitool")
	c.BMCs = []BMC{{Entry: bmc.Entry{Node: "gpu-1", Address: "10.0.0.1", Credentials: dir}}}
	if change != nil {
		change(&c.BMCs[0])
	}
	return New(c), dir
}

func write(t *testing.T, dir, name, text string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

// sent are the commands that the script was called with.
func sent(t *testing.T, dir string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "calls"))
	if err != nil {
		t.Fatal(err)
	}
	var commands []string
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, "secret") {
			t.Errorf("the password stands on the command line: %s", line)
		}
		_, one, _ := strings.Cut(strings.TrimSpace(line), " raw ")
		commands = append(commands, one)
	}
	return commands
}

const (
	on  = `if [ "$sent" = "0x00 0x01" ]; then echo " 01 00 00"; exit 0; fi` + "\n"
	off = `if [ "$sent" = "0x00 0x01" ]; then echo " 00 00 00"; exit 0; fi` + "\n"
)

func TestReset(t *testing.T) {
	refuse := func(command string, code byte) string {
		return `if [ "$sent" = "` + command + `" ]; then echo "` + strings.TrimSpace(refused(code, "")) + `" >&2; exit 1; fi` + "\n"
	}
	for _, tt := range []struct {
		name, script string
		change       func(*BMC)
		want         codes.Code
		sent         []string
	}{
		{"reset", on, nil, codes.OK, []string{"0x00 0x01", "0x00 0x02 0x03"}},
		{"cycle", on, func(b *BMC) { b.Reset = []string{Cycle} }, codes.OK, []string{"0x00 0x01", "0x00 0x02 0x02"}},
		{"the next way", on + refuse("0x00 0x02 0x03", 0xcc), nil, codes.OK, []string{"0x00 0x01", "0x00 0x02 0x03", "0x00 0x02 0x02"}},
		{"no way", on + refuse("0x00 0x02 0x03", 0xcc) + refuse("0x00 0x02 0x02", 0xc1), nil, codes.FailedPrecondition, []string{"0x00 0x01", "0x00 0x02 0x03", "0x00 0x02 0x02"}},
		{"perhaps done, so no other way", on + refuse("0x00 0x02 0x03", 0xff), nil, codes.Unavailable, []string{"0x00 0x01", "0x00 0x02 0x03"}},
		{"not allowed, so no other way", on + refuse("0x00 0x02 0x03", 0xd4), nil, codes.PermissionDenied, []string{"0x00 0x01", "0x00 0x02 0x03"}},
		{"off", off, nil, codes.Aborted, []string{"0x00 0x01"}},
		{"off, to be switched on", off, func(b *BMC) { b.PowerOn = true }, codes.OK, []string{"0x00 0x01", "0x00 0x02 0x01"}},
		{"the question fails", "exit 1", nil, codes.Aborted, []string{"0x00 0x01"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d, dir := tool(t, tt.script, tt.change)
			if err := d.Reset(t.Context(), machine, false); status.Code(err) != tt.want {
				t.Errorf("%v, want %s", err, tt.want)
			}
			if got := sent(t, dir); !slices.Equal(got, tt.sent) {
				t.Errorf("sent %q, want %q", got, tt.sent)
			}
		})
	}
}

func TestInspect(t *testing.T) {
	const guid = `if [ "$sent" = "0x06 0x37" ]; then echo " a1 23 45 67 89 ab cd ef"; echo " a1 23 45 67 89 ab cd ef"; exit 0; fi` + "\n"
	none := `echo "` + strings.TrimSpace(refused(0xc1, "Invalid command")) + `" >&2; exit 1`
	for _, tt := range []struct {
		name, script string
		facts        bmc.Facts
		want         codes.Code
	}{
		{"on", on + guid, bmc.Facts{Power: bmc.On, UUID: "a123456789abcdefa123456789abcdef"}, codes.OK},
		{"off", off + guid, bmc.Facts{Power: bmc.Off, UUID: "a123456789abcdefa123456789abcdef"}, codes.OK},
		{"a BMC without a GUID", on + none, bmc.Facts{Power: bmc.On}, codes.OK},
		{"no answer", on + "exit 1", bmc.Facts{}, codes.Unavailable},
	} {
		d, _ := tool(t, tt.script, nil)
		if got, err := d.Inspect(t.Context(), machine); got != tt.facts || status.Code(err) != tt.want {
			t.Errorf("%s: %+v, %v; want %+v, %s", tt.name, got, err, tt.facts, tt.want)
		}
	}
}

// A tool that hangs is killed with all that it has started, and the signal is
// perhaps done.
func TestAToolThatHangs(t *testing.T) {
	d, dir := tool(t, on+"sleep 1000 &\necho $! > child.new; mv child.new child; wait", nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	over := make(chan error)
	go func() { over <- d.Reset(ctx, machine, false) }()
	var child int
	testkit.Until(t, time.Minute, func() bool {
		text, err := os.ReadFile(filepath.Join(dir, "child"))
		if err != nil {
			return false
		}
		child, err = strconv.Atoi(strings.TrimSpace(string(text)))
		return err == nil
	})
	cancel()
	if err := <-over; status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("%v, want DeadlineExceeded", err)
	}
	testkit.Until(t, time.Minute, func() bool { return exited(child) })
	if err := d.Reset(ctx, machine, false); status.Code(err) != codes.Aborted {
		t.Errorf("after the deadline: %v, want Aborted", err)
	}
}

// exited reports whether a process has ended; one that nobody waits for has.
func exited(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return true
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || bytes.Contains(text, []byte(") Z "))
}

func TestOutputIsBounded(t *testing.T) {
	o := run(t.Context(), "/bin/sh", []string{"-c", "head -c 100000 /dev/zero; head -c 100000 /dev/zero >&2"})
	if len(o.stdout) != maxOutput || len(o.stderr) != maxOutput || o.exit != 0 || o.killed {
		t.Errorf("%d and %d bytes, exit %d, killed %v; want %d of both", len(o.stdout), len(o.stderr), o.exit, o.killed, maxOutput)
	}
}

func TestCredentials(t *testing.T) {
	d, dir := tool(t, on, nil)
	for name, text := range map[string]string{"password": strings.Repeat("x", maxPassword+1), "username": strings.Repeat("x", maxUser+1)} {
		before, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		write(t, dir, name, text, 0o600)
		if err := d.Reset(t.Context(), machine, false); status.Code(err) != codes.Unauthenticated || strings.Contains(err.Error(), "xxx") {
			t.Errorf("a %s that is too long: %v, want Unauthenticated", name, err)
		}
		write(t, dir, name, string(before), 0o600)
	}
	if _, err := os.Stat(filepath.Join(dir, "calls")); err == nil {
		t.Error("ipmitool was called with credentials that it would cut")
	}
}

func TestConfig(t *testing.T) {
	valid := func() Config {
		c := Default()
		c.Plaintext = true
		c.Defaults.Credentials = "/etc/bmc"
		c.BMCs = []BMC{{Entry: bmc.Entry{Node: "gpu-1", Address: "10.0.0.1"}}, {Entry: bmc.Entry{Node: "gpu-2", Address: "[fd00::1]:6230"}}, {Entry: bmc.Entry{Node: "gpu-3", Address: "fd00::2"}}}
		return c
	}
	if err := valid().Validate(); err != nil {
		t.Fatalf("valid: %v", err)
	}
	for want, change := range map[string]func(*Config){
		"[[bmc]] is missing":               func(c *Config) { c.BMCs = nil },
		`bmc[0] (node://gpu-1): address =`: func(c *Config) { c.BMCs[0].Address = "https://10.0.0.1" },
		"must be HOST or HOST:PORT":        func(c *Config) { c.BMCs[0].Address = "-H evil" },
		`"10.0.0.1:0"`:                     func(c *Config) { c.BMCs[0].Address = "10.0.0.1:0" },
		"bmc[0] has the same address":      func(c *Config) { c.BMCs[1].Address = c.BMCs[0].Address },
		"cipherSuite = 1 must be":          func(c *Config) { c.BMCs[0].CipherSuite = 1 },
		"OPERATOR or ADMINISTRATOR":        func(c *Config) { c.BMCs[0].Privilege = "USER" },
		`resetTypes has "soft"`:            func(c *Config) { c.Defaults.Reset = []string{"soft"} },
		"--ipmitool":                       func(c *Config) { c.Program = "" },
	} {
		c := valid()
		change(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	host, port, ok := valid().BMCs[1].endpoint()
	if host != "fd00::1" || port != "6230" || !ok {
		t.Errorf("%s, %s, %v", host, port, ok)
	}
}
