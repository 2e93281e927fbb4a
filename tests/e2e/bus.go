package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/godbus/dbus/v5"
)

const (
	// busFolder has the system bus of the machine, and beside it what node-reboot of this test
	// uses of the kernel.
	busFolder  = "/run/dbus"
	busAddress = "unix:path=" + busFolder + "/system_bus_socket"
	// kernelRecords has what node-reboot writes to the kernel log, and sysrqCommands what it
	// passes to the kernel.
	kernelRecords = busFolder + "/kmsg"
	sysrqCommands = busFolder + "/sysrq-trigger"
	busBootID     = busFolder + "/boot_id"
)

// logind answers on the system bus of the machine as systemd-logind does.
type logind struct{ machine *machine }

// Reboot ends the machine after the answer.
func (l logind) Reboot(bool) *dbus.Error {
	go func() {
		if err := l.machine.reboot(context.Background()); err != nil {
			l.machine.log("rebooting the machine: %v", err)
		}
	}()
	return nil
}

// prepareBus makes the files beside the system bus.
func prepareBus() error {
	return errors.Join(os.MkdirAll(busFolder, 0o755), os.WriteFile(kernelRecords, nil, 0o600), os.WriteFile(sysrqCommands, nil, 0o600))
}

// startBus starts the system bus of the machine, which stays when the machine reboots.
func (m *machine) startBus(ctx context.Context) error {
	if _, err := m.run("dbus-daemon", "--session", "--nofork", "--address="+busAddress); err != nil {
		return err
	}
	var conn *dbus.Conn
	err := until(ctx, time.Minute, func(context.Context) (err error) {
		conn, err = dbus.Connect(busAddress) // open until the process ends
		return err
	})
	if err == nil {
		err = conn.Export(logind{m}, "/org/freedesktop/login1", "org.freedesktop.login1.Manager")
	}
	if err != nil {
		return fmt.Errorf("starting the system bus %s: %w", filepath.Base(busAddress), err)
	}
	if reply, err := conn.RequestName("org.freedesktop.login1", 0); err != nil || reply != dbus.RequestNameReplyPrimaryOwner {
		return fmt.Errorf("naming logind on the system bus: answer %d, %w", reply, err)
	}
	return nil
}
