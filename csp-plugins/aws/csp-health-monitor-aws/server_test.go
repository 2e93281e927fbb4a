package main

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// server is a stand-in of the EC2 Query API and of the JSON API of AWS Health that
// keeps a log of what was asked. It was written from their published descriptions:
// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_DescribeInstanceStatus.html
// https://docs.aws.amazon.com/health/latest/APIReference/API_DescribeEvents.html
// https://docs.aws.amazon.com/health/latest/APIReference/API_DescribeAffectedEntities.html
// https://docs.aws.amazon.com/health/latest/APIReference/API_DescribeEventDetails.html
type server struct {
	url string

	mu        sync.Mutex
	instances []instance
	dns       map[string]string // private names of instances
	events    []event
	page      int                // items of a page at most; zero is what is asked for
	faults    map[string][]fault // by operation and page: "DescribeEvents 3"
	requests  []string           // operation and page of every request that was not refused
	questions []map[string]any   // filters that Health was asked with
}

type instance struct {
	id     string
	events []scheduledEvent
}

type scheduledEvent struct {
	ID          string `xml:"instanceEventId"`
	Code        string `xml:"code"`
	Description string `xml:"description"`
	NotBefore   string `xml:"notBefore,omitempty"`
	NotAfter    string `xml:"notAfter,omitempty"`
	Deadline    string `xml:"notBeforeDeadline,omitempty"`
}

// event is one of AWS Health.
type event struct {
	arn, code, category, status string
	start, end, updated         time.Time
	entities                    []entity
	text                        string
}

type entity struct{ value, status string }

// fault is what goes wrong with a request; without a code the connection is cut in
// the middle of the answer.
type fault struct {
	status int
	code   string
}

func serve(t testing.TB) *server {
	t.Helper()
	s := &server{faults: map[string][]fault{}}
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	s.url = h.URL
	return s
}

// count is how many requests of an operation were answered.
func (s *server) count(operation string) int {
	n := 0
	for _, b := range s.requests {
		if strings.HasPrefix(b, operation+" ") {
			n++
		}
	}
	return n
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	authorization := r.Header.Get("Authorization")
	if operation, ok := strings.CutPrefix(r.Header.Get("X-Amz-Target"), "AWSHealth_20160804."); ok {
		if !strings.Contains(authorization, "/us-east-1/health/aws4_request") {
			refuseJSON(w, fault{403, "SignatureDoesNotMatch"})
			return
		}
		s.health(w, operation, body)
		return
	}
	form, err := url.ParseQuery(string(body))
	if err != nil || !strings.Contains(authorization, "/us-west-2/ec2/aws4_request") {
		refuseXML(w, fault{403, "SignatureDoesNotMatch"})
		return
	}
	if form.Get("Action") == "DescribeInstances" {
		s.describe(w, form)
		return
	}
	s.status(w, form)
}

// describe answers about the instances that a filter names; one that is unknown is left
// out (https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_DescribeInstances.html).
func (s *server) describe(w http.ResponseWriter, form url.Values) {
	if f, bad := s.trouble("DescribeInstances", 1); bad {
		refuseXML(w, f)
		return
	}
	type item struct {
		ID  string `xml:"instanceId"`
		DNS string `xml:"privateDnsName"`
	}
	answer := struct {
		XMLName xml.Name `xml:"DescribeInstancesResponse"`
		Items   []item   `xml:"reservationSet>item>instancesSet>item"`
	}{}
	for n := 1; form.Get("Filter.1.Name") == "instance-id" && form.Has(fmt.Sprint("Filter.1.Value.", n)); n++ {
		for _, i := range s.instances {
			if i.id == form.Get(fmt.Sprint("Filter.1.Value.", n)) {
				answer.Items = append(answer.Items, item{i.id, s.dns[i.id]})
			}
		}
	}
	w.Header().Set("Content-Type", "text/xml;charset=UTF-8")
	_ = xml.NewEncoder(w).Encode(answer)
}

// trouble is the next fault of an operation's page; otherwise the request is logged.
func (s *server) trouble(operation string, page int) (fault, bool) {
	key := fmt.Sprintf("%s %d", operation, page)
	if list := s.faults[key]; len(list) > 0 {
		s.faults[key] = list[1:]
		return list[0], true
	}
	s.requests = append(s.requests, key)
	return fault{}, false
}

// cut is the part of a list that a token and a size ask for.
func cut[T any](s *server, list []T, token string, size int) (part []T, next string, page int, ok bool) {
	offset := 0
	if token != "" {
		var err error
		if offset, err = strconv.Atoi(strings.TrimPrefix(token, "t")); err != nil || offset >= len(list) {
			return nil, "", 0, false
		}
	}
	if s.page != 0 {
		size = min(size, s.page)
	}
	end := min(offset+size, len(list))
	if end < len(list) {
		next = fmt.Sprint("t", end)
	}
	return list[offset:end], next, offset/size + 1, true
}

func (s *server) status(w http.ResponseWriter, form url.Values) {
	size, err := strconv.Atoi(form.Get("MaxResults"))
	for name := range form {
		if !slices.Contains([]string{"Action", "Version", "IncludeAllInstances", "MaxResults", "NextToken", "DryRun"}, name) {
			refuseXML(w, fault{400, "UnknownParameter"})
			return
		}
	}
	switch {
	case form.Get("Action") != "DescribeInstanceStatus":
		refuseXML(w, fault{400, "InvalidAction"})
		return
	case form.Get("DryRun") == "true":
		f, bad := s.trouble("DryRun", 1)
		if !bad {
			f = fault{412, "DryRunOperation"}
		}
		refuseXML(w, f)
		return
	case err != nil || size < 5 || size > 1000:
		refuseXML(w, fault{400, "InvalidMaxResults"})
		return
	}
	part, next, page, ok := cut(s, s.instances, form.Get("NextToken"), size)
	if !ok {
		refuseXML(w, fault{400, "InvalidNextToken"})
		return
	}
	if f, bad := s.trouble("DescribeInstanceStatus", page); bad {
		refuseXML(w, f)
		return
	}
	type item struct {
		ID     string           `xml:"instanceId"`
		State  string           `xml:"instanceState>name"`
		Events []scheduledEvent `xml:"eventsSet>item"`
	}
	answer := struct {
		XMLName xml.Name `xml:"DescribeInstanceStatusResponse"`
		Items   []item   `xml:"instanceStatusSet>item"`
		Next    string   `xml:"nextToken,omitempty"`
	}{Next: next}
	for _, i := range part {
		answer.Items = append(answer.Items, item{i.id, "running", i.events})
	}
	w.Header().Set("Content-Type", "text/xml;charset=UTF-8")
	_ = xml.NewEncoder(w).Encode(answer)
}

func refuseXML(w http.ResponseWriter, f fault) {
	if f.code == "" {
		hang(w, `<DescribeInstanceStatusResponse><instanceStatusSet><item>`)
		return
	}
	w.WriteHeader(f.status)
	fmt.Fprintf(w, `<Response><Errors><Error><Code>%s</Code><Message>so it is</Message></Error></Errors><RequestID>r</RequestID></Response>`, f.code)
}

func refuseJSON(w http.ResponseWriter, f fault) {
	if f.code == "" {
		hang(w, `{"events":[{"arn":"arn:aws:health:us-west-2::event/`)
		return
	}
	w.Header().Set("Content-Type", "application/x-amz-json-1.1")
	w.WriteHeader(f.status)
	fmt.Fprintf(w, `{"__type":%q,"message":"so it is"}`, f.code)
}

// hang ends an answer in the middle.
func hang(w http.ResponseWriter, begun string) {
	w.Header().Set("Content-Length", "100000")
	_, _ = io.WriteString(w, begun)
	panic(http.ErrAbortHandler)
}

// question is what Health's three operations take.
type question struct {
	Filter     map[string]any `json:"filter"`
	EventArns  []string       `json:"eventArns"`
	MaxResults int            `json:"maxResults"`
	NextToken  string         `json:"nextToken"`
}

func (s *server) health(w http.ResponseWriter, operation string, body []byte) {
	var q question
	if err := json.Unmarshal(body, &q); err != nil {
		refuseJSON(w, fault{400, "SerializationException"})
		return
	}
	answers := map[string]func(question) (any, int, bool){
		"DescribeEvents": s.describeEvents, "DescribeAffectedEntities": s.affected, "DescribeEventDetails": s.details,
	}
	answer, known := answers[operation]
	if !known {
		refuseJSON(w, fault{400, "UnknownOperationException"})
		return
	}
	out, page, ok := answer(q)
	if !ok {
		refuseJSON(w, fault{400, "ValidationException"})
		return
	}
	if f, bad := s.trouble(operation, page); bad {
		refuseJSON(w, f)
		return
	}
	w.Header().Set("Content-Type", "application/x-amz-json-1.1")
	_ = json.NewEncoder(w).Encode(out)
}

// texts are the members of a filter that is a list of texts; false if there are too many.
func texts(filter map[string]any, name string) ([]string, bool) {
	list, _ := filter[name].([]any)
	var out []string
	for _, v := range list {
		out = append(out, fmt.Sprint(v))
	}
	return out, len(out) <= 10
}

func (s *server) describeEvents(q question) (any, int, bool) {
	s.questions = append(s.questions, q.Filter)
	if q.MaxResults < 10 || q.MaxResults > 100 {
		return nil, 0, false
	}
	fits := func(name, value string) (bool, bool) {
		list, ok := texts(q.Filter, name)
		return len(list) == 0 || slices.Contains(list, value), ok
	}
	var since time.Time
	if ranges, ok := q.Filter["lastUpdatedTimes"].([]any); ok {
		since = time.Unix(int64(ranges[0].(map[string]any)["from"].(float64)), 0)
	}
	arns, _ := texts(q.Filter, "eventArns")
	var list []any
	for _, e := range s.events {
		if len(arns) > 0 && !slices.Contains(arns, e.arn) {
			continue
		}
		all := !e.updated.Before(since)
		for name, value := range map[string]string{
			"services": "EC2", "regions": "us-west-2", "eventTypeCategories": e.category, "eventTypeCodes": e.code,
			"eventStatusCodes": e.status, "eventArns": e.arn,
		} {
			fit, valid := fits(name, value)
			if !valid {
				return nil, 0, false
			}
			all = all && fit
		}
		if all {
			list = append(list, e.json())
		}
	}
	slices.Reverse(list) // the most recent first
	part, next, page, ok := cut(s, list, q.NextToken, q.MaxResults)
	return map[string]any{"events": part, "nextToken": next}, page, ok
}

func (e event) json() map[string]any {
	out := map[string]any{
		"arn": e.arn, "service": "EC2", "eventTypeCode": e.code, "eventTypeCategory": e.category, "region": "us-west-2",
		"statusCode": e.status, "eventScopeCode": "ACCOUNT_SPECIFIC", "lastUpdatedTime": e.updated.Unix(),
	}
	for name, at := range map[string]time.Time{"startTime": e.start, "endTime": e.end} {
		if !at.IsZero() {
			out[name] = at.Unix()
		}
	}
	return out
}

func (s *server) affected(q question) (any, int, bool) {
	arns, ok := texts(q.Filter, "eventArns")
	if !ok || len(arns) == 0 || q.MaxResults < 10 || q.MaxResults > 100 {
		return nil, 0, false
	}
	var list []any
	for _, e := range s.events {
		if slices.Contains(arns, e.arn) {
			for _, one := range e.entities {
				list = append(list, map[string]any{"eventArn": e.arn, "entityValue": one.value, "statusCode": one.status})
			}
		}
	}
	part, next, page, ok := cut(s, list, q.NextToken, q.MaxResults)
	return map[string]any{"entities": part, "nextToken": next}, page, ok
}

func (s *server) details(q question) (any, int, bool) {
	if len(q.EventArns) == 0 || len(q.EventArns) > 10 {
		return nil, 0, false
	}
	found, failed := []any{}, []any{}
	for _, arn := range q.EventArns {
		i := slices.IndexFunc(s.events, func(e event) bool { return e.arn == arn })
		if i < 0 || s.events[i].text == "" {
			failed = append(failed, map[string]any{"eventArn": arn, "errorName": "InternalServerError", "errorMessage": "later"})
			continue
		}
		found = append(found, map[string]any{"event": s.events[i].json(), "eventDescription": map[string]any{"latestDescription": s.events[i].text}})
	}
	return map[string]any{"successfulSet": found, "failedSet": failed}, 1, true
}
