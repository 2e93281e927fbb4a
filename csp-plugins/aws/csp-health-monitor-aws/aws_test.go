package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/health"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/announcement"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// connect makes a source of the SDK's own clients; they retry as always, but at once,
// and do not give up on a slow machine.
func connect(t testing.TB, s *server) *Source {
	retryer := func() sdk.Retryer {
		return loggingRetryer{retry.NewStandard(func(o *retry.StandardOptions) { o.MaxBackoff = time.Microsecond; o.RateLimiter = noLimit{} }), t}
	}
	creds := credentials.NewStaticCredentialsProvider("AKIDTEST", "secret", "")
	return Of(
		ec2.New(ec2.Options{Region: "us-west-2", BaseEndpoint: &s.url, Credentials: creds, Retryer: retryer(), HTTPClient: bufferedTransport{}}),
		health.New(health.Options{Region: "us-east-1", BaseEndpoint: &s.url, Credentials: creds, Retryer: retryer(), HTTPClient: bufferedTransport{}}),
		"us-west-2")
}

// bufferedTransport sends a request with a body of its own. The SDK closes its body when the answer
// comes, and net/http ends the connection in the middle of that if it still looks for more
// of the body: a server on the same machine is fast enough for it, no cloud is.
type bufferedTransport struct{}

func (bufferedTransport) Do(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	r = r.Clone(r.Context())
	r.Body = io.NopCloser(bytes.NewReader(body))
	return http.DefaultClient.Do(r)
}

// loggingRetryer logs what may be tried again.
type loggingRetryer struct {
	*retry.Standard
	t testing.TB
}

func (l loggingRetryer) IsErrorRetryable(err error) bool {
	again := l.Standard.IsErrorRetryable(err)
	if again {
		l.t.Logf("worth another attempt: %v", err)
	}
	return again
}

// noLimit lets every attempt pass: a source lives for years, one of a test for many faults.
type noLimit struct{}

func (noLimit) GetToken(context.Context, uint) (func() error, error) {
	return func() error { return nil }, nil
}
func (noLimit) AddTokens(uint) error { return nil }

func at(hours float64) string {
	return now.Add(time.Duration(hours * float64(time.Hour))).Format(time.RFC3339)
}

func in(hours float64) time.Time { return now.Add(time.Duration(hours * float64(time.Hour))) }

func arn(code, id string) string {
	return fmt.Sprintf("arn:aws:health:us-west-2::event/EC2/%s/%s_%s", code, code, id)
}

func read(t *testing.T, s *Source, q announcement.Question) announcement.Reading {
	t.Helper()
	if q.Now.IsZero() {
		q.Now = now
	}
	r, err := s.Read(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// only is the one announcement of a reading.
func only(t *testing.T, r announcement.Reading) announcement.Announcement {
	t.Helper()
	if len(r.Announcements) != 1 {
		t.Fatalf("%d announcements, want 1: %+v", len(r.Announcements), r.Announcements)
	}
	return r.Announcements[0]
}

const id = "i-0123456789abcdef0"

// Each code of the table, reported by the API that has it, becomes its action.
func TestCodes(t *testing.T) {
	for _, c := range append(Codes(), announcement.Unknown("AWS_EC2_NEVER_HEARD_OF"), announcement.Unknown("instance-levitation")) {
		t.Run(c.Name, func(t *testing.T) {
			s := serve(t)
			if strings.HasPrefix(c.Name, "AWS_") {
				s.events = []event{{arn: arn(c.Name, "1"), code: c.Name, category: "scheduledChange", status: "upcoming", start: in(2), updated: in(-1), entities: []entity{{id, "PENDING"}}, text: "for people"}}
			} else {
				s.instances = []instance{{id, []scheduledEvent{{ID: "instance-event-1", Code: c.Name, Description: "for people", NotBefore: at(2)}}}}
			}
			a := only(t, read(t, connect(t, s), announcement.Question{}))
			if a.Code != c.Name || a.Action != c.Action || a.Emergency != c.Emergency || a.Unplanned != c.Unplanned || a.Machine != id || a.Text != "for people" {
				t.Errorf("%+v, want %+v", a, c)
			}
		})
	}
	if got := announcement.Unknown("x").Action; got != protos.RecommendedAction_CONTACT_SUPPORT {
		t.Errorf("an unknown code is %s, want CONTACT_SUPPORT", got)
	}
}

// The states of EC2 (source: the field description of InstanceStatusEvent, and the
// output of describe-instance-status in "Scheduled events for Amazon EC2 instances").
func TestStatesOfEC2(t *testing.T) {
	for _, tt := range []struct {
		description string
		notBefore   float64
		want        announcement.State
	}{
		{"The instance is scheduled for a reboot", 2, announcement.Scheduled},
		{"The instance is scheduled for a reboot", 0, announcement.Ongoing},
		{"The instance is scheduled for a reboot", -2, announcement.Ongoing},
		{"[Completed] The instance is scheduled for a reboot", -2, announcement.Completed},
		{"[Canceled] The instance is scheduled for a reboot", 2, announcement.Cancelled},
		{"[Cancelled] The instance is scheduled for a reboot", 2, announcement.Cancelled},
		{"[Postponed] The instance is scheduled for a reboot", 2, announcement.Scheduled},
		{"a reboot that is not [Completed]", 2, announcement.Scheduled},
		{"", -1, announcement.Ongoing},
	} {
		s := serve(t)
		s.instances = []instance{{id, []scheduledEvent{{ID: "instance-event-1", Code: "system-reboot", Description: tt.description, NotBefore: at(tt.notBefore), NotAfter: at(tt.notBefore + 1), Deadline: at(9)}}}}
		a := only(t, read(t, connect(t, s), announcement.Question{Open: []string{id + "/instance-event-1"}}))
		if a.State != tt.want || !a.Begin.Equal(in(tt.notBefore)) || !a.End.Equal(in(tt.notBefore+1)) || a.Metadata["notBeforeDeadline"] != at(9) {
			t.Errorf("%q at %v: %+v, want %s", tt.description, tt.notBefore, a, tt.want)
		}
	}
}

// The states of AWS Health (source: statusCode of Event and of AffectedEntity).
func TestStatesOfHealth(t *testing.T) {
	for _, tt := range []struct {
		status, entity string
		start          float64
		want           announcement.State
	}{
		{"upcoming", "PENDING", 2, announcement.Scheduled},
		{"upcoming", "", -1, announcement.Scheduled},
		{"open", "IMPAIRED", 2, announcement.Scheduled},
		{"open", "UNKNOWN", -1, announcement.Ongoing},
		{"open", "UNIMPAIRED", -1, announcement.Ongoing},
		{"open", "RESOLVED", -1, announcement.Completed},
		{"closed", "IMPAIRED", -1, announcement.Completed},
		{"closed", "", 2, announcement.Cancelled},
		{"postponed", "", -1, announcement.Scheduled},
	} {
		s := serve(t)
		code := "AWS_EC2_DEDICATED_HOST_RETIREMENT_SCHEDULED"
		s.events = []event{{arn: arn(code, "1"), code: code, category: "scheduledChange", status: tt.status, start: in(tt.start), end: in(3), updated: in(0), entities: []entity{{id, tt.entity}}}}
		a := only(t, read(t, connect(t, s), announcement.Question{Checkpoint: at(-1)}))
		if a.State != tt.want || a.Metadata["statusCode"] != tt.status || !strings.Contains(a.Text, "returned no description") {
			t.Errorf("%s, %s, begins %v: %+v, want %s", tt.status, tt.entity, tt.start, a, tt.want)
		}
	}
}

// One maintenance that both APIs report is one announcement over its whole life,
// whichever reports it first.
func TestOneMaintenanceIsOneAnnouncement(t *testing.T) {
	const code = "AWS_EC2_PERSISTENT_INSTANCE_RETIREMENT_SCHEDULED"
	reported := func(status string, updated float64) []event {
		return []event{{arn: arn(code, "1"), code: code, category: "scheduledChange", status: status, start: in(24), end: in(24), updated: in(updated), entities: []entity{{id, "PENDING"}}, text: "of Health"}}
	}
	shown := func(word string, begin float64) []instance {
		return []instance{{id, []scheduledEvent{{ID: "instance-event-1", Code: "instance-retirement", Description: word + "of EC2", NotBefore: at(begin), NotAfter: at(begin + 1)}}}}
	}
	step := func(instances []instance, events []event, hour float64) (func(*server), time.Time) {
		return func(s *server) { s.instances, s.events = instances, events }, in(hour)
	}
	type lifecycle struct {
		name  string
		steps []func() (func(*server), time.Time)
		want  []string // the announcement after each step: state, Health's or EC2's id
	}
	do := func(instances []instance, events []event, hour float64) func() (func(*server), time.Time) {
		return func() (func(*server), time.Time) { return step(instances, events, hour) }
	}
	for _, l := range []lifecycle{
		{"EC2 first", []func() (func(*server), time.Time){
			do(shown("", 24), nil, 0), do(shown("", 24), reported("upcoming", 1), 1), do(shown("", 24), reported("open", 24), 24.5),
			do(shown("[Completed] ", 24), reported("open", 24), 25), do(shown("[Completed] ", 24), reported("closed", 26), 26), do(nil, reported("closed", 26), 200),
		}, []string{"Scheduled EC2", "Scheduled EC2", "Ongoing EC2", "Completed EC2", "", ""}},
		{"Health first", []func() (func(*server), time.Time){
			do(nil, reported("upcoming", 0), 0), do(nil, reported("upcoming", 0), 2), do(shown("", 24), reported("upcoming", 0), 3), do(shown("", 24), reported("closed", 24), 24.5),
			do(shown("[Completed] ", 24), reported("closed", 24), 25), do(shown("[Completed] ", 24), reported("closed", 24), 26), do(nil, reported("open", 199), 200),
		}, []string{"Scheduled Health", "Scheduled Health", "Scheduled Health", "Ongoing Health", "Completed Health", "", ""}},
		{"rescheduled in EC2 before Health", []func() (func(*server), time.Time){
			do(shown("", 24), reported("upcoming", 0), 0), do(shown("", 72), reported("upcoming", 0), 1), do(shown("", 72), reported("open", 24), 25), do(shown("[Canceled] ", 72), reported("closed", 26), 26),
		}, []string{"Scheduled EC2", "Scheduled EC2", "Scheduled EC2", "Cancelled EC2"}},
		{"Health alone", []func() (func(*server), time.Time){
			do(nil, reported("upcoming", 0), 0), do(nil, reported("upcoming", 0), 10), do(nil, reported("open", 24), 25), do(nil, reported("closed", 26), 26), do(nil, reported("closed", 26), 26.5),
		}, []string{"Scheduled Health", "Scheduled Health", "Ongoing Health", "Completed Health", ""}},
		{"the monitor was down across the window", []func() (func(*server), time.Time){
			do(shown("", 24), reported("upcoming", 0), 0), do(shown("[Completed] ", 24), reported("closed", 26), 150),
		}, []string{"Scheduled EC2", "Completed EC2"}},
		{"nobody saw it before it was over", []func() (func(*server), time.Time){
			do(nil, nil, 0), do(shown("[Completed] ", 24), reported("closed", 26), 150),
		}, []string{"", ""}},
	} {
		t.Run(l.name, func(t *testing.T) {
			s := serve(t)
			source := connect(t, s)
			q := announcement.Question{}
			for i, step := range l.steps {
				change, when := step()
				change(s)
				q.Now = when
				r := read(t, source, q)
				got := ""
				q.Checkpoint, q.Open = r.Checkpoint, nil
				if len(r.Announcements) > 0 {
					a := only(t, r)
					creds := "EC2"
					if strings.Contains(a.ID, "/arn:") {
						creds = "Health"
					}
					got = string(a.State) + " " + creds
					if a.State == announcement.Scheduled || a.State == announcement.Ongoing {
						q.Open = []string{a.ID}
					}
				}
				if got != l.want[i] || !r.Complete {
					t.Errorf("step %d: %q, complete %v; want %q", i, got, r.Complete, l.want[i])
				}
			}
		})
	}
}

// The end of an UltraServer's maintenance is an event of its own.
func TestUltraServer(t *testing.T) {
	const begin, end = "AWS_EC2_ULTRASERVER_MAINTENANCE_INITIATED", "AWS_EC2_ULTRASERVER_MAINTENANCE_COMPLETED"
	s := serve(t)
	source := connect(t, s)
	s.events = []event{{arn: arn(begin, "1"), code: begin, category: "issue", status: "open", start: in(-1), updated: in(-1), entities: []entity{{id, ""}}, text: "b"}}
	first := only(t, read(t, source, announcement.Question{}))
	if first.State != announcement.Ongoing || !first.Unplanned {
		t.Fatalf("%+v", first)
	}
	s.events = append(s.events, event{arn: arn(end, "2"), code: end, category: "issue", status: "open", start: in(3), updated: in(3), entities: []entity{{id, ""}}, text: "e"})
	r := read(t, source, announcement.Question{Now: in(4), Checkpoint: at(2.5), Open: []string{first.ID}})
	i := slices.IndexFunc(r.Announcements, func(a announcement.Announcement) bool { return a.ID == first.ID })
	if i < 0 || r.Announcements[i].State != announcement.Completed || !r.Announcements[i].Ended.Equal(in(3)) {
		t.Errorf("%+v", r.Announcements)
	}
}

// What mirrors nothing that EC2 shows, and has no begin, is kept.
func TestHealthWithoutBegin(t *testing.T) {
	const code = "AWS_EC2_MAINTENANCE_SCHEDULED"
	s := serve(t)
	s.events = []event{{arn: arn(code, "1"), code: code, category: "scheduledChange", status: "upcoming", entities: []entity{{id, ""}}, text: "x"}}
	if a := only(t, read(t, connect(t, s), announcement.Question{})); a.State != announcement.Scheduled || !a.Begin.IsZero() {
		t.Errorf("%+v", a)
	}
}

// A program's end of life concerns no machine, an event that names no entity yet is kept.
func TestOddEvents(t *testing.T) {
	const lifecycleEvent, host = "AWS_EC2_PLANNED_LIFECYCLE_EVENT", "AWS_EC2_DEDICATED_HOST_MAINTENANCE_SCHEDULED"
	s := serve(t)
	s.events = []event{
		{arn: arn(lifecycleEvent, "1"), code: lifecycleEvent, category: "scheduledChange", status: "upcoming", start: in(999), entities: []entity{{id, "PENDING"}}, text: "x"},
		{arn: arn(host, "2"), code: host, category: "scheduledChange", status: "upcoming", start: in(9), text: "x"},
	}
	a := only(t, read(t, connect(t, s), announcement.Question{}))
	if a.Machine != "UNKNOWN" || a.Code != host {
		t.Fatalf("%+v", a)
	}
	s.events[1].entities = []entity{{id, ""}}
	if b := only(t, read(t, connect(t, s), announcement.Question{Now: in(5), Checkpoint: at(4), Open: []string{a.ID}})); b.Machine != id {
		t.Errorf("%+v", b)
	}
}

// Whatever goes wrong on page 3 of 5, and stays so, leaves no reading; what the SDK's
// retries get over leaves the whole one.
func TestFaults(t *testing.T) {
	faults := map[string]fault{
		"throttled": {503, "RequestLimitExceeded"}, "429": {429, "ThrottlingException"}, "500": {500, "InternalError"},
		"cut": {}, "expired": {400, "ExpiredTokenException"}, "denied": {403, "AccessDeniedException"}, "page forgotten": {400, "InvalidPaginationToken"},
	}
	for _, operation := range []string{"DescribeInstanceStatus", "DescribeEvents", "DescribeAffectedEntities"} {
		for name, f := range faults {
			for _, times := range []int{1, 9} {
				t.Run(fmt.Sprint(operation, " ", name, " ", times), func(t *testing.T) {
					s := serve(t)
					s.page = 10
					for i := range 50 {
						machine := fmt.Sprintf("i-%08x", i)
						s.instances = append(s.instances, instance{machine, []scheduledEvent{{ID: "instance-event-1", Code: "instance-stop", NotBefore: at(1)}}})
						s.events = append(s.events, event{arn: arn("X", machine), code: "AWS_EC2_X", category: "scheduledChange", status: "upcoming", start: in(5), updated: now, entities: make([]entity, 5)})
					}
					s.faults[operation+" 3"] = slices.Repeat([]fault{f}, times)
					r, err := connect(t, s).Read(t.Context(), announcement.Question{Now: now, Checkpoint: at(-5)})
					passes := times == 1 && slices.Contains([]string{"throttled", "429", "500", "cut"}, name)
					switch {
					case passes && (err != nil || len(r.Announcements) != 100):
						t.Errorf("%d announcements, %v; want 100", len(r.Announcements), err)
					case !passes && (err == nil || r.Checkpoint != "" || r.Announcements != nil):
						t.Errorf("a reading %d, %q, %v; want none", len(r.Announcements), r.Checkpoint, err)
					}
				})
			}
		}
	}
}

// The window begins before the checkpoint, and the checkpoint is the question's time.
func TestWindow(t *testing.T) {
	s := serve(t)
	source := connect(t, s)
	if r := read(t, source, announcement.Question{}); r.Checkpoint != at(0) {
		t.Errorf("checkpoint %q, want %s", r.Checkpoint, at(0))
	}
	if first := s.questions[0]; first["lastUpdatedTimes"] != nil || fmt.Sprint(first["eventStatusCodes"]) != "[open upcoming]" {
		t.Errorf("first asked for %v", first)
	}
	s.questions = nil
	read(t, source, announcement.Question{Now: in(48), Checkpoint: at(0)})
	for _, q := range s.questions {
		if from := q["lastUpdatedTimes"].([]any)[0].(map[string]any)["from"]; from != float64(in(-1).Unix()) {
			t.Errorf("asked from %v, want %d", from, in(-1).Unix())
		}
	}
	if _, err := source.Read(t.Context(), announcement.Question{Now: now, Checkpoint: "yesterday"}); err == nil {
		t.Error("a checkpoint that is none was read")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := source.Read(ctx, announcement.Question{Now: now}); err == nil {
		t.Error("a reading after the end")
	}
}

// Without AWS Health, EC2 is the whole truth, except about what Health reported before.
func TestWithoutHealth(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIDTEST")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	t.Setenv("AWS_CONFIG_FILE", "/nowhere")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
	s := serve(t)
	source, err := New(t.Context(), CloudConfig{Region: "us-west-2", WithoutHealth: true, EC2Endpoint: s.url})
	if err != nil {
		t.Fatal(err)
	}
	if err := source.Check(t.Context()); err != nil {
		t.Error(err)
	}
	if r := read(t, source, announcement.Question{Open: []string{id + "/instance-event-1"}}); !r.Complete || r.Calls != 1 {
		t.Errorf("%+v", r)
	}
	if r := read(t, source, announcement.Question{Open: []string{id + "/" + arn("X", "1")}}); r.Complete {
		t.Errorf("%+v", r)
	}
}

func TestCheck(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIDTEST")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	t.Setenv("AWS_CONFIG_FILE", "/nowhere")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
	s := serve(t)
	s.events = []event{{arn: arn("X", "1"), code: "AWS_EC2_X", category: "scheduledChange", status: "upcoming", entities: []entity{{id, ""}}, text: "x"}}
	source, err := New(t.Context(), CloudConfig{Region: "us-west-2", EC2Endpoint: s.url, HealthEndpoint: s.url})
	if err != nil {
		t.Fatal(err)
	}
	if err := source.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	for operation, f := range map[string]fault{
		"DryRun": {403, "UnauthorizedOperation"}, "DescribeEvents": {400, "SubscriptionRequiredException"},
		"DescribeAffectedEntities": {400, "AccessDeniedException"}, "DescribeEventDetails": {400, "AccessDeniedException"},
	} {
		s.faults[operation+" 1"] = []fault{f}
		if err := source.Check(t.Context()); err == nil || !strings.Contains(err.Error(), f.code) {
			t.Errorf("%s %s: %v", operation, f.code, err)
		}
	}
	t.Setenv("AWS_REGION", "")
	if _, err := New(t.Context(), CloudConfig{}); err == nil {
		t.Error("a source without a region")
	}
}

func TestMachine(t *testing.T) {
	for providerID, want := range map[string]string{
		"aws:///us-west-2a/i-0123456789abcdef0":          id,
		"aws:///us-west-2-lax-1a/i-01234567":             "i-01234567",
		"":                                               "",
		"aws:///us-west-2a/":                             "",
		"aws:///us-west-2a/i-XYZ":                        "",
		"aws:///us-west-2a/fargate-ip-10-0-0-1":          "",
		"aws:///us-west-2a/i-0123456789abcdef0/x":        "",
		"gce://project/zone/name":                        "",
		"azure:///subscriptions/s":                       "",
		"ocid1.instance.oc1.phx.abc":                     "",
		"xaws:///us-west-2a/i-0123456789abcdef0":         "",
		"aws:///us-west-2a/i-0123456789abcdef0\n":        "",
		"aws:///us-west-2a/i-0123456789abcdef0123456789": "",
	} {
		got, ok := (&Source{}).Machine(providerID)
		if got != want || ok != (want != "") {
			t.Errorf("%q is %q, %v; want %q", providerID, got, ok, want)
		}
	}
}

func FuzzMachine(f *testing.F) {
	f.Add("aws:///us-west-2a/i-0123456789abcdef0")
	f.Add("aws:///a/i-")
	f.Fuzz(func(t *testing.T, providerID string) {
		got, ok := (&Source{}).Machine(providerID)
		if ok != (got != "") || ok && (!strings.HasSuffix(providerID, "/"+got) || !strings.HasPrefix(got, "i-") || strings.ContainsAny(got, "/\n ")) {
			t.Errorf("%q is %q, %v", providerID, got, ok)
		}
	})
}

// The page's table is the code's.
func TestTheTableOfThePage(t *testing.T) {
	text, err := os.ReadFile("../../maintenance.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), announcement.Markdown(Codes())) {
		t.Errorf("maintenance.md lacks this table:\n%s", announcement.Markdown(Codes()))
	}
	names := map[string]bool{}
	for _, c := range Codes() {
		names[c.Name] = true
	}
	if len(names) != len(Codes()) {
		t.Errorf("a code stands twice: %v", slices.Sorted(maps.Keys(names)))
	}
}
