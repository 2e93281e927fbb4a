package ec2fake

import (
	"encoding/xml"
	"net/http"
	"net/url"
)

// namespace of the answers.
const namespace = "http://ec2.amazonaws.com/doc/" + Version + "/"

const requestID = "59dbff89-35bd-4eac-99ed-be587EXAMPLE"

// codesOfStates are EC2's numbers of instance states.
var codesOfStates = map[string]int{"pending": 0, "running": 16, "shutting-down": 32, "terminated": 48, "stopping": 64, "stopped": 80}

type state struct {
	Code int    `xml:"code"`
	Name string `xml:"name"`
}

type statusItem struct {
	ID       string `xml:"instanceId"`
	State    state  `xml:"instanceState"`
	System   string `xml:"systemStatus>status"`
	Instance string `xml:"instanceStatus>status"`
}

type describeAnswer struct {
	XMLName   xml.Name     `xml:"DescribeInstanceStatusResponse"`
	Namespace string       `xml:"xmlns,attr"`
	RequestID string       `xml:"requestId"`
	Items     []statusItem `xml:"instanceStatusSet>item"`
}

// describe shows running instances, and others if it is asked for all.
func (c *Cloud) describe(form url.Values, e *Entry) (any, *refusal) {
	answer := describeAnswer{Namespace: namespace, RequestID: requestID}
	i := c.instances[e.Instance]
	checks := i.Checks
	if i.State != "running" {
		checks = "not-applicable"
	}
	if i.State == "running" || form.Get("IncludeAllInstances") == "true" {
		answer.Items = []statusItem{{ID: e.Instance, State: state{codesOfStates[i.State], i.State}, System: checks, Instance: checks}}
	}
	if i.State == "shutting-down" {
		i.State = "terminated" // it was seen on its way
	}
	return answer, nil
}

type privateAddress struct {
	IP  string `xml:"privateIpAddress"`
	DNS string `xml:"privateDnsName"`
}

type tag struct {
	Key   string `xml:"key"`
	Value string `xml:"value"`
}

type instanceItem struct {
	ID    string           `xml:"instanceId"`
	State state            `xml:"instanceState"`
	DNS   string           `xml:"privateDnsName"`
	IP    string           `xml:"privateIpAddress,omitempty"`
	Cards []privateAddress `xml:"networkInterfaceSet>item>privateIpAddressesSet>item"`
	Tags  []tag            `xml:"tagSet>item"`
}

type instancesAnswer struct {
	XMLName   xml.Name       `xml:"DescribeInstancesResponse"`
	Namespace string         `xml:"xmlns,attr"`
	RequestID string         `xml:"requestId"`
	Items     []instanceItem `xml:"reservationSet>item>instancesSet>item"`
}

// instancesSet shows an instance with the addresses of its network interfaces and its tags.
func (c *Cloud) instancesSet(_ url.Values, e *Entry) (any, *refusal) {
	i := c.instances[e.Instance]
	item := instanceItem{ID: e.Instance, State: state{codesOfStates[i.State], i.State}, DNS: i.DNS, IP: i.IP}
	if i.IP != "" {
		item.Cards = []privateAddress{{i.IP, i.DNS}}
	}
	if i.Further != "" {
		item.Cards = append(item.Cards, privateAddress{"10.200.0.1", i.Further})
	}
	for key, value := range i.Tags {
		item.Tags = append(item.Tags, tag{key, value})
	}
	return instancesAnswer{Namespace: namespace, RequestID: requestID, Items: []instanceItem{item}}, nil
}

type rebootAnswer struct {
	XMLName   xml.Name `xml:"RebootInstancesResponse"`
	Namespace string   `xml:"xmlns,attr"`
	RequestID string   `xml:"requestId"`
	Return    bool     `xml:"return"`
}

func (c *Cloud) reboot(_ url.Values, e *Entry) (any, *refusal) {
	i := c.instances[e.Instance]
	if i.State != "running" {
		return nil, refuse(http.StatusBadRequest, "IncorrectInstanceState", "The instance '%s' is not in a state from which it can be rebooted.", e.Instance)
	}
	i.Reboots++
	e.Done = true
	return rebootAnswer{Namespace: namespace, RequestID: requestID, Return: true}, nil
}

type terminateItem struct {
	ID       string `xml:"instanceId"`
	Current  state  `xml:"currentState"`
	Previous state  `xml:"previousState"`
}

type terminateAnswer struct {
	XMLName   xml.Name        `xml:"TerminateInstancesResponse"`
	Namespace string          `xml:"xmlns,attr"`
	RequestID string          `xml:"requestId"`
	Items     []terminateItem `xml:"instancesSet>item"`
}

// terminate may be repeated, as with EC2.
func (c *Cloud) terminate(_ url.Values, e *Entry) (any, *refusal) {
	i := c.instances[e.Instance]
	if i.Protected {
		return nil, refuse(http.StatusBadRequest, "OperationNotPermitted", "The instance '%s' may not be terminated. Modify its 'disableApiTermination' instance attribute and try again.", e.Instance)
	}
	before := i.State
	if before != "terminated" {
		i.State = "shutting-down"
		i.Terminates++
		e.Done = true
	}
	return terminateAnswer{Namespace: namespace, RequestID: requestID, Items: []terminateItem{{
		ID: e.Instance, Current: state{codesOfStates[i.State], i.State}, Previous: state{codesOfStates[before], before},
	}}}, nil
}

type errorAnswer struct {
	XMLName   xml.Name `xml:"Response"`
	Code      string   `xml:"Errors>Error>Code"`
	Message   string   `xml:"Errors>Error>Message"`
	RequestID string   `xml:"RequestID"`
}

func answerError(w http.ResponseWriter, r *refusal) {
	w.Header().Set("Content-Type", "text/xml;charset=UTF-8")
	w.WriteHeader(r.status)
	_ = xml.NewEncoder(w).Encode(errorAnswer{Code: r.code, Message: r.message, RequestID: requestID})
}
