// Package redfishfake is a stand-in of a BMC's Redfish service for tests: it
// records every signal, requires credentials, and fails as it is configured
// (source: DMTF DSP0266, and the schemas ComputerSystem and Task of DSP8010).
// The answers of a service that nobody here wrote are tried with the emulator of
// sushy-tools.
package redfishfake

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// System is one machine behind the BMC.
type System struct {
	UUID, Power string
	// LastReset is LastResetTime; empty has none.
	LastReset string
	// Offered are the allowable values of ResetType; nil leaves them out.
	Offered []string
	// Info is where the link to the ActionInfo of the reset leads; empty has none. The
	// fake's own is that of InfoOf, which offers Listed.
	Info   string
	Listed []string
	// Resets are the types of the resets that were done.
	Resets []string
}

// Fault is what goes wrong with one request.
type Fault struct {
	// Status and Message are the answer; without a status the connection is dropped.
	Status  int
	Message string // MessageId
	// After carries the request out first, so that only the answer is lost.
	After bool
	// Hang answers nothing until the caller gives up.
	Hang bool
	// Arrived hears of the request that hangs.
	Arrived func()
	// Body is sent instead of an error.
	Body string
	// Location redirects.
	Location string
}

// BMC is one service. Its fields are set before it serves.
type BMC struct {
	// Username and Password are asked of every request but that for the root.
	Username, Password string
	// SessionsOnly refuses basic authentication.
	SessionsOnly bool
	// Task, if set, makes a task of each reset; the states are shown one after the
	// other.
	Task []string
	// Reset hears, without any lock, of every reset.
	Reset func(id string)

	mu            sync.Mutex
	systems       map[string]*System
	faults        map[string][]Fault // by what: look, reset, task
	requestCounts map[string]int
	sent          []string
	sessions      map[string]bool
	logins        int
	tasks         int
}

// New makes a BMC of some machines.
func New(systems map[string]*System) *BMC {
	return &BMC{Username: "operator", Password: "secret", systems: systems, faults: map[string][]Fault{}, requestCounts: map[string]int{}, sessions: map[string]bool{}}
}

// Fail makes the next requests go wrong: of "look", "info", "reset" or "task".
func (b *BMC) Fail(what string, faults ...Fault) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.faults[what] = append(b.faults[what], faults...)
}

// RequestCount counts the requests of "look", "info", "reset" or "task" that were let in.
func (b *BMC) RequestCount(what string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.requestCounts[what]
}

// Sent are the reset types of all signals that were let in, also of those that went
// wrong.
func (b *BMC) Sent() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.sent)
}

// InfoOf is the path of the ActionInfo of a machine's reset.
func InfoOf(id string) string { return root + "/Systems/" + id + "/ResetActionInfo" }

// Sessions are how many logins there were, and how many are open.
func (b *BMC) Sessions() (logins, open int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.logins, len(b.sessions)
}

// Change changes a machine.
func (b *BMC) Change(id string, change func(*System)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change(b.systems[id])
}

// System is a machine as it is now.
func (b *BMC) System(id string) System {
	b.mu.Lock()
	defer b.mu.Unlock()
	return *b.systems[id]
}

const root = "/redfish/v1"

// ServeHTTP answers one request.
func (b *BMC) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimSuffix(r.URL.Path, "/")
	switch {
	case path == root && r.Method == http.MethodGet:
		answer(w, http.StatusOK, map[string]any{
			"@odata.id": root, "Id": "RootService", "Systems": link(root + "/Systems"),
			"Links": map[string]any{"Sessions": link(root + "/SessionService/Sessions")}, "Tasks": link(root + "/TaskService"),
		})
		return
	case path == root+"/SessionService/Sessions" && r.Method == http.MethodPost:
		b.login(w, r)
		return
	case !b.admits(r):
		refuse(w, http.StatusUnauthorized, "Base.1.18.NoValidSession")
		return
	}
	what, do := b.route(r, path)
	if do == nil {
		refuse(w, http.StatusNotFound, "Base.1.18.ResourceMissingAtURI")
		return
	}
	b.mu.Lock()
	b.requestCounts[what]++
	var fault *Fault
	if list := b.faults[what]; len(list) > 0 {
		fault, b.faults[what] = &list[0], list[1:]
	}
	b.mu.Unlock()
	if fault == nil {
		do(w)
		return
	}
	if fault.After {
		do(discard{})
	}
	b.fail(w, r, *fault)
}

func (b *BMC) fail(w http.ResponseWriter, r *http.Request, f Fault) {
	switch {
	case f.Hang:
		if f.Arrived != nil {
			f.Arrived()
		}
		<-r.Context().Done()
		panic(http.ErrAbortHandler)
	case f.Location != "":
		w.Header().Set("Location", f.Location)
		w.WriteHeader(f.Status)
	case f.Body != "":
		w.WriteHeader(f.Status)
		_, _ = fmt.Fprint(w, f.Body)
	case f.Status == 0:
		panic(http.ErrAbortHandler) // the connection is dropped
	default:
		refuse(w, f.Status, f.Message)
	}
}

// route finds what a request is.
func (b *BMC) route(r *http.Request, path string) (what string, do func(http.ResponseWriter)) {
	id, action, _ := strings.Cut(strings.TrimPrefix(path, root+"/Systems/"), "/")
	b.mu.Lock()
	_, known := b.systems[id]
	b.mu.Unlock()
	switch {
	case path == root+"/Systems" && r.Method == http.MethodGet:
		return "list", b.list
	case strings.HasPrefix(path, root+"/TaskService/TaskMonitors/") && r.Method == http.MethodGet:
		return "task", b.task
	case strings.HasPrefix(path, root+"/SessionService/Sessions/") && r.Method == http.MethodDelete:
		return "logout", func(w http.ResponseWriter) { b.logout(w, path) }
	case known && action == "" && r.Method == http.MethodGet:
		return "look", func(w http.ResponseWriter) { b.serveStatus(w, id) }
	case known && action == "ResetActionInfo" && r.Method == http.MethodGet:
		return "info", func(w http.ResponseWriter) { b.info(w, id) }
	case known && action == "Actions/ComputerSystem.Reset" && r.Method == http.MethodPost:
		var q struct{ ResetType string }
		if json.NewDecoder(r.Body).Decode(&q) != nil {
			return "reset", func(w http.ResponseWriter) { refuse(w, http.StatusBadRequest, "Base.1.18.MalformedJSON") }
		}
		b.mu.Lock()
		b.sent = append(b.sent, q.ResetType)
		b.mu.Unlock()
		return "reset", func(w http.ResponseWriter) { b.reset(w, id, q.ResetType) }
	}
	return "", nil
}

func (b *BMC) list(w http.ResponseWriter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var ids []string
	for id := range b.systems {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	members := []any{}
	for _, id := range ids {
		members = append(members, link(root+"/Systems/"+id))
	}
	answer(w, http.StatusOK, map[string]any{"Members": members, "Members@odata.count": len(members)})
}

func (b *BMC) serveStatus(w http.ResponseWriter, id string) {
	s := b.System(id)
	reset := map[string]any{"target": root + "/Systems/" + id + "/Actions/ComputerSystem.Reset"}
	if s.Offered != nil {
		reset["ResetType@Redfish.AllowableValues"] = s.Offered
	}
	if s.Info != "" {
		reset["@Redfish.ActionInfo"] = s.Info
	}
	body := map[string]any{
		"@odata.id": root + "/Systems/" + id, "Id": id, "UUID": s.UUID,
		"Actions": map[string]any{"#ComputerSystem.Reset": reset},
	}
	if s.Power != "" {
		body["PowerState"] = s.Power
	}
	if s.LastReset != "" {
		body["LastResetTime"] = s.LastReset
	}
	answer(w, http.StatusOK, body)
}

func (b *BMC) info(w http.ResponseWriter, id string) {
	answer(w, http.StatusOK, map[string]any{
		"@odata.id": InfoOf(id), "Id": "ResetActionInfo",
		"Parameters": []any{map[string]any{"Name": "ResetType", "DataType": "String", "Required": true, "AllowableValues": b.System(id).Listed}},
	})
}

func (b *BMC) reset(w http.ResponseWriter, id, way string) {
	s := b.System(id)
	if len(s.Offered) > 0 && !slices.Contains(s.Offered, way) {
		refuse(w, http.StatusBadRequest, "Base.1.18.ActionParameterValueNotInList")
		return
	}
	b.Change(id, func(s *System) { s.Resets = append(s.Resets, way); s.Power = "On" })
	if b.Reset != nil {
		b.Reset(id)
	}
	if b.Task == nil {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	w.Header().Set("Location", root+"/TaskService/TaskMonitors/1")
	answer(w, http.StatusAccepted, map[string]any{"@odata.id": root + "/TaskService/Tasks/1", "Id": "1", "TaskState": "New"})
}

// task shows the next state; the last one stays.
func (b *BMC) task(w http.ResponseWriter) {
	b.mu.Lock()
	state := b.Task[min(b.tasks, len(b.Task)-1)]
	b.tasks++
	b.mu.Unlock()
	code := http.StatusAccepted
	if state == "Completed" {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	if state == "Exception" {
		code = http.StatusOK
	}
	answer(w, code, map[string]any{"Id": "1", "TaskState": state, "Messages": []any{map[string]any{"MessageId": "Base.1.18.InternalError"}}})
}

func (b *BMC) admits(r *http.Request) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if token := r.Header.Get("X-Auth-Token"); token != "" {
		return b.sessions[token]
	}
	user, password, ok := r.BasicAuth()
	return ok && !b.SessionsOnly && user == b.Username && password == b.Password
}

func (b *BMC) login(w http.ResponseWriter, r *http.Request) {
	var q struct{ UserName, Password string }
	if json.NewDecoder(r.Body).Decode(&q) != nil || q.UserName != b.Username || q.Password != b.Password {
		refuse(w, http.StatusUnauthorized, "Base.1.18.ResourceAtUriUnauthorized")
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.logins++
	token := fmt.Sprintf("token-%d", b.logins)
	b.sessions[token] = true
	w.Header().Set("X-Auth-Token", token)
	w.Header().Set("Location", root+"/SessionService/Sessions/"+token)
	answer(w, http.StatusCreated, map[string]any{"Id": token})
}

func (b *BMC) logout(w http.ResponseWriter, path string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.sessions, path[strings.LastIndex(path, "/")+1:])
	w.WriteHeader(http.StatusNoContent)
}

func link(to string) map[string]any { return map[string]any{"@odata.id": to} }

func answer(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}

func refuse(w http.ResponseWriter, code int, message string) {
	answer(w, code, map[string]any{"error": map[string]any{
		"code": "Base.1.18.GeneralError", "message": "so it is",
		"@Message.ExtendedInfo": []any{map[string]any{"MessageId": message}},
	}})
}

// discard is an answer that nobody gets.
type discard struct{}

func (discard) Header() http.Header         { return http.Header{} }
func (discard) Write(p []byte) (int, error) { return len(p), nil }
func (discard) WriteHeader(int)             {}
