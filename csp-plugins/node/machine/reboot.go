package machine

import (
	"context"
	"fmt"
	"time"

	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/csp-plugins/node/order"
	"github.com/nvidia/nvsentinel/internal/retry"
)

const (
	// settle is the time between the record and the reboot. Within it the kubelet reports
	// the started Pod, and the journal stores the record.
	settle = 5 * time.Second
	// busTimeout limits the calls to systemd.
	busTimeout = 25 * time.Second
	// sysrqPause is the time that the kernel gets for each sysrq command but the last.
	sysrqPause = 3 * time.Second
	// aliveAfter is the time after which the machine must have ended.
	aliveAfter = 10 * time.Second
)

// sysrqCommands write the caches, mount the file systems read-only, and reboot.
const sysrqCommands = "sub"

// Host is the machine.
type Host struct {
	// BootID reads the boot ID.
	BootID func() (string, error)
	// Record writes one record into the kernel log.
	Record func(text string) error
	// Systemd asks systemd for a reboot and returns when it accepts.
	Systemd func(ctx context.Context) error
	// Sysrq passes one command to the kernel.
	Sysrq func(command byte) error
	Clock clock.Clock
	// Log writes to the log of the Pod.
	Log func(format string, args ...any)
}

// Reboot executes an order. It returns only if the machine stays up.
func (h Host) Reboot(ctx context.Context, o order.Order) order.Result {
	boot, err := h.BootID()
	if err != nil {
		h.note(o, fmt.Sprintf("not rebooting, the boot ID is not readable (%v)", err))
		return order.Failed
	}
	if why, nothing := o.Check(boot, h.Clock.Now()); nothing {
		h.note(o, fmt.Sprintf("not rebooting, %s (running boot %s, allowed until %s)", why, boot, o.StartBy.UTC().Format(time.RFC3339)))
		return why
	}
	h.note(o, "rebooting")
	retry.Sleep(ctx, h.Clock, settle)
	accepted := h.bySystemd(ctx, o)
	if err := h.bySysrq(ctx, o); err == nil || accepted {
		return order.Requested
	}
	return order.Failed
}

// bySystemd asks systemd and waits for the end of the machine. It returns whether systemd
// has accepted.
func (h Host) bySystemd(ctx context.Context, o order.Order) bool {
	if o.Force {
		return false
	}
	asking, cancel := context.WithTimeout(ctx, busTimeout)
	err := h.Systemd(asking)
	cancel()
	if err != nil {
		h.note(o, fmt.Sprintf("systemd did not accept the reboot (%v), using sysrq", err))
		return false
	}
	h.Log("systemd accepted the reboot")
	retry.Sleep(ctx, h.Clock, o.SystemdTimeout)
	h.note(o, fmt.Sprintf("systemd did not end the machine within %s, using sysrq", o.SystemdTimeout))
	return true
}

// bySysrq lets the kernel reboot, without the operating system.
func (h Host) bySysrq(ctx context.Context, o order.Order) error {
	for i, command := range []byte(sysrqCommands) {
		if err := h.Sysrq(command); err != nil {
			h.note(o, fmt.Sprintf("sysrq failed (%v)", err))
			return err
		}
		wait := sysrqPause
		if i == len(sysrqCommands)-1 {
			wait = aliveAfter
		}
		retry.Sleep(ctx, h.Clock, wait)
	}
	return nil
}

// note writes to the kernel log and the log of the Pod. A machine whose kernel log is not
// writable is rebooted all the same.
func (h Host) note(o order.Order, text string) {
	record := o.Record(text)
	h.Log("%s", record[:len(record)-1])
	if err := h.Record(record); err != nil {
		h.Log("writing to the kernel log: %v", err)
	}
}
