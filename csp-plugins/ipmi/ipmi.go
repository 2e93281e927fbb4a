package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"strconv"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nvidia/nvsentinel/csp-plugins/internal/bmc"
)

// command is one request of IPMI 2.0: network function, command and data.
type command struct {
	name  string // as ipmitool calls it
	bytes []byte
	// signal: it changes the machine.
	signal bool
}

var (
	powerStatus = command{name: "chassis power status", bytes: []byte{0x00, 0x01}}                    // 28.2, Get Chassis Status
	systemGUID  = command{name: "mc guid", bytes: []byte{0x06, 0x37}}                                 // 22.14, Get System GUID
	powerOn     = command{name: "chassis power on", bytes: []byte{0x00, 0x02, 0x01}, signal: true}    // 28.3, Chassis Control
	powerCycle  = command{name: "chassis power cycle", bytes: []byte{0x00, 0x02, 0x02}, signal: true} //
	hardReset   = command{name: "chassis power reset", bytes: []byte{0x00, 0x02, 0x03}, signal: true} //
	controls    = map[string]command{Reset: hardReset, Cycle: powerCycle}
)

// Driver is the driver of the BMCs of a configuration.
type Driver struct {
	program string
	bmcs    map[string]BMC // by machine
}

var _ bmc.Driver = (*Driver)(nil)

// New makes the driver of a configuration that was validated.
func New(c Config) *Driver {
	d := &Driver{program: c.Program, bmcs: map[string]BMC{}}
	for _, b := range c.All() {
		d.bmcs[b.Machine()] = b
	}
	return d
}

// Inspect asks for the power and for the system's GUID. IPMI does not report when the
// machine was last reset.
func (d *Driver) Inspect(ctx context.Context, machine string) (bmc.Facts, error) {
	power, err := d.power(ctx, machine)
	if err != nil {
		return bmc.Facts{}, err
	}
	guid, err := d.send(ctx, machine, systemGUID)
	switch {
	case status.Code(err) == codes.FailedPrecondition:
		return bmc.Facts{Power: power}, nil // a BMC without that command knows none
	case err != nil:
		return bmc.Facts{}, err
	}
	return bmc.Facts{Power: power, UUID: hex.EncodeToString(guid)}, nil
}

// power reads bit 0 of the current power state.
func (d *Driver) power(ctx context.Context, machine string) (bmc.Power, error) {
	answer, err := d.send(ctx, machine, powerStatus)
	switch {
	case err != nil:
		return "", err
	case len(answer) == 0:
		return bmc.Unknown, nil
	case answer[0]&1 == 0:
		return bmc.Off, nil
	}
	return bmc.On, nil
}

// Reset sends one Chassis Control; the next way follows only when the BMC refused
// the one before as a thing that it can not do. None of them waits for the
// operating system, so force changes nothing.
func (d *Driver) Reset(ctx context.Context, machine string, _ bool) error {
	b := d.bmcs[machine]
	power, err := d.power(ctx, machine)
	if err != nil {
		return nothingSent(err)
	}
	if power == bmc.Off {
		if !b.PowerOn {
			return status.Error(codes.Aborted, "the machine is off and may be under maintenance: switch it on, or set powerOn in its [[bmc]]")
		}
		_, err := d.send(ctx, machine, powerOn)
		return err
	}
	for _, way := range b.Reset {
		if _, err = d.send(ctx, machine, controls[way]); status.Code(err) != codes.FailedPrecondition {
			break
		}
	}
	return err
}

// send runs ipmitool once, which sends each packet once.
func (d *Driver) send(ctx context.Context, machine string, c command) ([]byte, error) {
	b, known := d.bmcs[machine]
	if !known {
		return nil, status.Errorf(codes.FailedPrecondition, "the plugin configuration has no [[bmc]] of %s", machine)
	}
	creds, err := credentials(b.Credentials)
	if err != nil {
		return nil, status.Error(codes.Unauthenticated, err.Error())
	}
	return answered(c, run(ctx, d.program, arguments(b, creds.Username, c)))
}

// arguments never hold the password: ipmitool reads the file that has it.
func arguments(b BMC, user string, c command) []string {
	host, port, _ := b.endpoint()
	// Without an answer ipmitool ends after twice that, in seconds.
	wait := "3"
	if c.signal {
		wait = "5"
	}
	list := []string{
		"-I", "lanplus", "-H", host, "-p", port, "-U", user, "-f", filepath.Join(b.Credentials, "password"),
		"-C", strconv.Itoa(b.CipherSuite), "-L", b.Privilege, "-N", wait, "-R", "1", "raw",
	}
	for _, one := range c.bytes {
		list = append(list, fmt.Sprintf("0x%02x", one))
	}
	return list
}

// IPMI 2.0 has 16 bytes for a user's name and 20 for a password (22.28, 22.30).
const (
	maxUser     = 16
	maxPassword = 20
)

// credentials are those that IPMI can carry; ipmitool would cut longer ones.
func credentials(folder string) (bmc.Credentials, error) {
	creds, err := bmc.ReadCredentials(folder)
	switch {
	case err != nil:
		return creds, err
	case len(creds.Username) > maxUser:
		return creds, fmt.Errorf("reading credentials: %s exceeds the %d bytes of IPMI", filepath.Join(folder, "username"), maxUser)
	case len(creds.Password) > maxPassword:
		return creds, fmt.Errorf("reading credentials: %s exceeds the %d bytes of IPMI", filepath.Join(folder, "password"), maxPassword)
	}
	return creds, nil
}
