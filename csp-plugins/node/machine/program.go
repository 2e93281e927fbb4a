// Package machine reboots the machine on which it runs, by systemd or by the kernel.
package machine

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/csp-plugins/node/order"
)

// Files are what the program uses of a machine.
type Files struct {
	// Bus is the D-Bus address of the system bus.
	Bus string
	// KernelLog accepts records, BootID contains the boot ID, and SysrqTrigger accepts commands.
	KernelLog, BootID, SysrqTrigger string
}

// Main is the program node-reboot: it takes its order from the environment, and its flags have the
// defaults f. It returns the exit status, which reports the result (order.Result).
func Main(f Files, environment func(name string) string) int {
	flag.StringVar(&f.Bus, "bus", f.Bus, "D-Bus address of the host's system bus.")
	flag.StringVar(&f.KernelLog, "kernel-log", f.KernelLog, "Device or file to which the reason for the reboot is written.")
	flag.StringVar(&f.BootID, "boot-id-file", f.BootID, "File with the boot ID of the host.")
	flag.StringVar(&f.SysrqTrigger, "sysrq-trigger", f.SysrqTrigger, "File that passes sysrq commands to the kernel.")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "node-reboot reboots the machine on which it runs. It runs in a Job of csp-plugin-node, which passes the order in environment variables.\n\nUsage of node-reboot:")
		flag.PrintDefaults()
	}
	flag.Parse()
	// The shutdown sends SIGTERM to each process. The program stays, because systemd may not
	// end the machine.
	signal.Ignore(syscall.SIGTERM, syscall.SIGHUP, os.Interrupt)
	host := Host{
		BootID: bootID(f.BootID), Record: record(f.KernelLog), Systemd: systemd(f.Bus), Sysrq: sysrq(f.SysrqTrigger),
		Clock: clock.RealClock{}, Log: func(format string, args ...any) { fmt.Printf(format+"\n", args...) },
	}
	return run(host, environment).Code()
}

func run(host Host, environment func(string) string) order.Result {
	o, err := order.Parse(environment)
	if err != nil {
		host.Log("the order is invalid, so nothing is done: %v", err)
		return order.Unreadable
	}
	return host.Reboot(context.Background(), o)
}
