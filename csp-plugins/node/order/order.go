// Package order is the order that the plugin gives to the program that reboots a machine:
// which boot it is for, until when the program may start, and for which object. It has no
// effects.
package order

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Order is one reboot.
type Order struct {
	// Key is the idempotency key: the uid of the maintenance object.
	Key string
	// Node and BootID are the machine that is rebooted, and the boot that ends by it.
	Node, BootID string
	// Session is the quarantine session of the Node, or empty.
	Session string
	// StartBy is the time after which the program does nothing.
	StartBy time.Time
	// SystemdTimeout is how long the program waits for systemd before it uses sysrq.
	SystemdTimeout time.Duration
	// Force does not ask systemd.
	Force bool
}

// Names of the variables, in the order of Variables.
const (
	keyName     = "REBOOT_KEY"
	nodeName    = "REBOOT_NODE"
	bootName    = "REBOOT_BOOT_ID"
	sessionName = "REBOOT_SESSION"
	startName   = "REBOOT_START_BY"
	systemdName = "REBOOT_SYSTEMD_TIMEOUT"
	forceName   = "REBOOT_FORCE"
)

// Variable is one environment variable.
type Variable struct{ Name, Value string }

// Variables returns the order as environment variables.
func (o Order) Variables() []Variable {
	return []Variable{
		{keyName, o.Key},
		{nodeName, o.Node},
		{bootName, o.BootID},
		{sessionName, o.Session},
		{startName, o.StartBy.UTC().Format(time.RFC3339)},
		{systemdName, o.SystemdTimeout.String()},
		{forceName, strconv.FormatBool(o.Force)},
	}
}

// Parse reads an order from environment variables.
func Parse(value func(name string) string) (Order, error) {
	o := Order{Key: value(keyName), Node: value(nodeName), BootID: value(bootName), Session: value(sessionName)}
	var problems []error
	for _, v := range []Variable{{nodeName, o.Node}, {bootName, o.BootID}} {
		if v.Value == "" {
			problems = append(problems, fmt.Errorf("%s is empty", v.Name))
		}
	}
	var err error
	if o.StartBy, err = time.Parse(time.RFC3339, value(startName)); err != nil {
		problems = append(problems, fmt.Errorf("%s: %w", startName, err))
	}
	if o.SystemdTimeout, err = time.ParseDuration(value(systemdName)); err != nil {
		problems = append(problems, fmt.Errorf("%s: %w", systemdName, err))
	}
	if o.Force, err = strconv.ParseBool(value(forceName)); err != nil {
		problems = append(problems, fmt.Errorf("%s: %w", forceName, err))
	}
	return o, errors.Join(problems...)
}

// Result is how the program ends.
type Result string

// Results.
const (
	// Requested: systemd or the kernel accepted the reboot.
	Requested Result = "Requested"
	// OtherBoot: the machine has another boot than the order, so nothing was done.
	OtherBoot Result = "OtherBoot"
	// Late: the program started after StartBy, so nothing was done.
	Late Result = "Late"
	// Failed: the machine could not be rebooted.
	Failed Result = "Failed"
	// Unreadable: the order is invalid, so nothing was done.
	Unreadable Result = "Unreadable"
)

// codes are the exit codes of the results. A container that the runtime kills has a code
// of 128 or more, and a Go program that crashes has 2.
var codes = map[Result]int{Requested: 0, OtherBoot: 80, Late: 81, Failed: 82, Unreadable: 83}

// Code returns the exit code of a result.
func (r Result) Code() int { return codes[r] }

// ResultOf returns the result of an exit code; false is one that the program does not give.
func ResultOf(code int) (Result, bool) {
	for result, c := range codes {
		if c == code {
			return result, true
		}
	}
	return "", false
}

// Check returns why the program must do nothing on a machine with this boot at this time;
// false means that it reboots the machine.
func (o Order) Check(bootID string, now time.Time) (Result, bool) {
	switch {
	case bootID != o.BootID:
		return OtherBoot, true
	case now.After(o.StartBy):
		return Late, true
	}
	return "", false
}

// Tag is the name of the program in the kernel log.
const Tag = "nvsentinel-node-reboot"

// priority is that of the records: warning, of a user-level program. The kernel does not
// accept its own facility from a program.
const priority = 1<<3 | 4

// Record is a line for /dev/kmsg: who reboots the machine, why, and for which object.
func (o Order) Record(text string) string {
	var out strings.Builder
	fmt.Fprintf(&out, "<%d>%s: %s: requested by csp-plugin-node for maintenance object %s, node %s, boot %s", priority, Tag, text, orNone(o.Key), o.Node, o.BootID)
	if o.Session != "" {
		fmt.Fprintf(&out, ", quarantine session %s", o.Session)
	}
	return strings.NewReplacer("\n", " ", "\x00", " ").Replace(out.String()) + "\n"
}

func orNone(key string) string {
	if key == "" {
		return "(none)"
	}
	return key
}
