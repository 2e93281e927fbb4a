package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nvidia/nvsentinel/csp-plugins/internal/redfishfake"
)

// recorded is one answer of a BMC of a vendor.
type recorded struct {
	Name string `json:"name"`
	// Source is where it was published, and what is not from there.
	Source string          `json:"source"`
	Status int             `json:"status"`
	Body   json.RawMessage `json:"body"`
	// Want is what the janitor hears of it, Sent are the signals before that.
	Want string   `json:"want"`
	Sent []string `json:"sent"`
}

func (r recorded) fault() redfishfake.Fault {
	var text string
	if json.Unmarshal(r.Body, &text) != nil {
		return redfishfake.Fault{Status: r.Status, Body: string(r.Body)}
	}
	return redfishfake.Fault{Status: r.Status, Body: text + "\n"}
}

// ids are those of its messages.
func (r recorded) ids() []string {
	var body struct {
		Error struct {
			Infos []struct {
				MessageID string `json:"MessageId"`
			} `json:"@Message.ExtendedInfo"`
		} `json:"error"`
	}
	_ = json.Unmarshal(r.Body, &body)
	ids := []string{fmt.Sprintf("HTTP %d", r.Status)}
	for _, info := range body.Error.Infos {
		ids = append(ids, info.MessageID)
	}
	return ids
}

// answers are those of testdata, by vendor.
func answers(t *testing.T) map[string][]recorded {
	t.Helper()
	all := map[string][]recorded{}
	for _, vendor := range []string{"idrac", "ilo", "xcc", "supermicro", "openbmc"} {
		text, err := os.ReadFile(filepath.Join("testdata", "answers", vendor+".json"))
		if err != nil {
			t.Fatal(err)
		}
		var list []recorded
		if err := json.Unmarshal(text, &list); err != nil || len(list) == 0 {
			t.Fatalf("%s: %d answers, %v", vendor, len(list), err)
		}
		all[vendor] = list
	}
	return all
}

// An answer ends a repair only if its message means that the refusal is permanent; the
// janitor gets the message.
func TestAnswersOfVendors(t *testing.T) {
	for vendor, list := range answers(t) {
		for _, r := range list {
			t.Run(vendor+": "+r.Name, func(t *testing.T) {
				if r.Source == "" {
					t.Error("it has no source")
				}
				d, fake := connect(t, nil)
				fake.Change(id, func(s *redfishfake.System) { s.Offered = nil })
				for range len(r.Sent) {
					fake.Fail("reset", r.fault())
				}
				err := d.Reset(t.Context(), machine, false)
				if status.Code(err).String() != r.Want || !slices.Equal(fake.Sent(), r.Sent) || fake.System(id).Resets != nil {
					t.Errorf("%v after %v; want %s after %v", err, fake.Sent(), r.Want, r.Sent)
				}
				for _, word := range r.ids() {
					if !strings.Contains(fmt.Sprint(err), word) {
						t.Errorf("%v does not say %q", err, word)
					}
				}
			})
		}
	}
}

// The same answers to the question before the signal: nothing was sent.
func TestAnswersOfVendorsToAQuestion(t *testing.T) {
	for vendor, list := range answers(t) {
		for _, r := range list {
			d, fake := connect(t, nil)
			fake.Fail("look", r.fault())
			want := r.Want
			if want == codes.Unavailable.String() {
				want = codes.Aborted.String()
			}
			if err := d.Reset(t.Context(), machine, false); status.Code(err).String() != want || fake.Sent() != nil {
				t.Errorf("%s: %s: %v after %v; want %s and no signal", vendor, r.Name, err, fake.Sent(), want)
			}
		}
	}
}

// busy is an answer with one message.
func busy(status int, id string) redfishfake.Fault {
	return redfishfake.Fault{Status: status, Message: id}
}

// Boards as vendors make them: what they offer, what they report about their power, and how
// they answer a signal (sources: quadsproject/badfish#118 for iDRAC 9,
// ibm-openbmc/bmcweb#157 and openbmc/bmcweb#266 for OpenBMC, system_lenovo.json of the
// crate libredfish for XCC; the DMTF's schema ComputerSystem for the others).
func TestBoardsOfVendors(t *testing.T) {
	idrac := []string{"On", "ForceOff", "ForceRestart", "GracefulShutdown", "PushPowerButton", "Nmi"}
	ilo := append(slices.Clone(idrac), "GracefulRestart")
	openbmc := []string{"On", "ForceOff", "ForceOn", "GracefulRestart", "GracefulShutdown", "PowerCycle", "Nmi"}
	xcc := []string{"On", "Nmi", "GracefulShutdown", "GracefulRestart", "ForceOn", "ForceOff", "ForceRestart"}
	mine := redfishfake.InfoOf(id)
	for _, tt := range []struct {
		name    string
		system  redfishfake.System
		order   []string
		force   bool
		signals []redfishfake.Fault
		infos   []redfishfake.Fault
		want    codes.Code
		sent    []string
	}{
		{name: "iDRAC 9, which has no GracefulRestart", system: redfishfake.System{Offered: idrac}, sent: []string{ForceRestart}},
		{name: "iDRAC 9, to be restarted gracefully", system: redfishfake.System{Offered: idrac}, order: []string{GracefulRestart}, want: codes.FailedPrecondition},
		{name: "iDRAC 8, which answers with text", system: redfishfake.System{Offered: idrac}, signals: []redfishfake.Fault{{Status: 200, Body: "OK"}}, sent: []string{ForceRestart}},
		{name: "iDRAC, while a job runs", system: redfishfake.System{Offered: idrac}, signals: []redfishfake.Fault{busy(409, "IDRAC.2.8.SYS403")}, want: codes.Aborted, sent: []string{ForceRestart}},
		{name: "iDRAC, in POST", system: redfishfake.System{Offered: idrac}, signals: []redfishfake.Fault{busy(400, "IDRAC.2.8.SYS428")}, want: codes.Aborted, sent: []string{ForceRestart}},
		{name: "iLO, in POST", system: redfishfake.System{Offered: ilo}, signals: []redfishfake.Fault{busy(400, "iLO.2.14.UnableToModifyDuringSystemPOST")}, want: codes.Aborted, sent: []string{ForceRestart}},
		{name: "iLO, not in this state", system: redfishfake.System{Offered: ilo}, signals: []redfishfake.Fault{busy(400, "iLO.2.14.InvalidOperationForSystemState")}, want: codes.Aborted, sent: []string{ForceRestart}},
		{name: "iLO, in reset", system: redfishfake.System{Offered: ilo, Power: "Reset"}, want: codes.Aborted},
		{name: "iLO, which does not know its power", system: redfishfake.System{Offered: ilo, Power: "Unknown"}, sent: []string{ForceRestart}},
		{name: "paused", system: redfishfake.System{Offered: ilo, Power: "Paused"}, want: codes.Aborted},
		{name: "XCC, with both lists", system: redfishfake.System{Offered: xcc, Info: mine, Listed: xcc}, sent: []string{ForceRestart}},
		{name: "OpenBMC of IBM, without ForceRestart", system: redfishfake.System{Info: mine, Listed: openbmc}, sent: []string{PowerCycle}},
		{name: "OpenBMC of IBM, by force", system: redfishfake.System{Info: mine, Listed: openbmc}, force: true, sent: []string{PowerCycle}},
		{name: "a link that leads nowhere", system: redfishfake.System{Info: mine + "/gone"}, sent: []string{ForceRestart}},
		{name: "a link that leads nowhere, and a list", system: redfishfake.System{Offered: idrac, Info: mine + "/gone"}, sent: []string{ForceRestart}},
		{name: "a link to a list of nothing", system: redfishfake.System{Info: mine}, sent: []string{ForceRestart}},
		{name: "a link to nonsense", system: redfishfake.System{Info: mine}, infos: []redfishfake.Fault{{Status: 200, Body: "<html>"}}, sent: []string{ForceRestart}},
		{name: "a link to something else", system: redfishfake.System{Info: mine}, infos: []redfishfake.Fault{{Status: 200, Body: `{"Id":"ResetActionInfo","Parameters":[]}`}}, sent: []string{ForceRestart}},
		{name: "a link that is not answered now", system: redfishfake.System{Info: mine}, infos: []redfishfake.Fault{busy(503, "Base.1.8.ServiceInUnknownState")}, want: codes.Aborted},
		{name: "a link that breaks", system: redfishfake.System{Info: mine}, infos: []redfishfake.Fault{{}, {}}, want: codes.Aborted},
		{name: "nothing is said of what is offered", sent: []string{ForceRestart}},
		{name: "nothing is said, and one is refused", signals: []redfishfake.Fault{busy(400, "Base.1.10.PropertyValueFormatError")}, sent: []string{ForceRestart, PowerCycle}},
		{name: "nothing is said, and two are refused", signals: []redfishfake.Fault{busy(400, "Base.1.10.PropertyValueFormatError"), busy(400, "Base.1.8.1.ActionParameterUnknown")}, sent: []string{ForceRestart, PowerCycle, GracefulRestart}},
		{name: "nothing is said, and all are refused by force", force: true, signals: []redfishfake.Fault{busy(400, "Base.1.10.PropertyValueFormatError"), busy(501, "Base.1.8.ActionNotSupported")}, want: codes.FailedPrecondition, sent: []string{ForceRestart, PowerCycle}},
		{name: "what is offered is refused", system: redfishfake.System{Offered: ilo}, signals: []redfishfake.Fault{busy(400, "Base.1.4.ActionParameterNotSupported")}, sent: []string{ForceRestart, GracefulRestart}},
		{name: "one is refused for good, the next for now", signals: []redfishfake.Fault{busy(400, "Base.1.10.PropertyValueFormatError"), busy(400, "iLO.2.14.InvalidOperationForSystemState")}, want: codes.Aborted, sent: []string{ForceRestart, PowerCycle}},
		{name: "one is refused for good, the next gets no answer", signals: []redfishfake.Fault{busy(400, "Base.1.10.PropertyValueFormatError"), {After: true}}, want: codes.Unavailable, sent: []string{ForceRestart, PowerCycle}},
		{name: "the BMC starts", system: redfishfake.System{Offered: idrac}, signals: []redfishfake.Fault{busy(503, "Base.1.0.ServiceInUnknownState")}, want: codes.Aborted, sent: []string{ForceRestart}},
		{name: "only off and on", system: redfishfake.System{Offered: []string{"On", "ForceOff", "Nmi"}}, want: codes.FailedPrecondition},
		{name: "an empty list", system: redfishfake.System{Offered: []string{}}, sent: []string{ForceRestart}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d, fake := connect(t, func(b *BMC) { b.Reset = tt.order })
			fake.Change(id, func(s *redfishfake.System) {
				power := s.Power
				if *s = tt.system; s.Power == "" {
					s.Power = power
				}
			})
			fake.Fail("reset", tt.signals...)
			fake.Fail("info", tt.infos...)
			err := d.Reset(t.Context(), machine, tt.force)
			if status.Code(err) != tt.want || !slices.Equal(fake.Sent(), tt.sent) {
				t.Errorf("%v after %v; want %s after %v", err, fake.Sent(), tt.want, tt.sent)
			}
			if done := len(fake.System(id).Resets); done > 1 || tt.want == codes.Aborted && done > 0 {
				t.Errorf("%d resets", done)
			}
		})
	}
}

// The versions of registries do not matter, and an unknown message means nothing.
func TestMessages(t *testing.T) {
	for id, want := range map[string]codes.Code{
		"Base.1.8.ActionNotSupported": codes.FailedPrecondition, "Base.1.8.1.ActionNotSupported": codes.FailedPrecondition,
		"Base.v1_4_0.ActionNotSupported": codes.FailedPrecondition, "ActionNotSupported": codes.FailedPrecondition,
		"Base.1.99.InsufficientPrivilege": codes.PermissionDenied, "SMC.v1_0_0.OemLicenseNotPassed": codes.PermissionDenied,
		"Oem.1.8.ActionNotSupported": codes.OK, "IDRAC.2.8.SYS403": codes.OK, "Base.1.8.GeneralError": codes.OK, "iLO.0.10.ExtendedInfo": codes.OK, "": codes.OK, ".": codes.OK,
		"iLO.2.14.InvalidOperationForSystemState": codes.Aborted, "Oem.1.0.ResourceInUse": codes.Aborted, "Base.1.8.ServiceTemporarilyUnavailable": codes.ResourceExhausted,
		"iLO.2.14.ResetInProgress": codes.Unavailable, "Oem.1.0.FirmwareUpdateInProgress": codes.Unavailable, "Base.1.8.Success": codes.Unavailable,
	} {
		if got := messageCode(id); got != want {
			t.Errorf("%q says %s, want %s", id, got, want)
		}
	}
}
