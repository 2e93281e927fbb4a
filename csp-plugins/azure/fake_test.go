package main

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"

	azfake "github.com/Azure/azure-sdk-for-go/sdk/azcore/fake"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7/fake"

	"github.com/nvidia/nvsentinel/csp-plugins/internal/cloudtest"
)

// manager is a stand-in of Azure Resource Manager that records its calls. Its machines
// answer through armcompute's own package fake, behind a real server; the asynchronous
// operations and the tokens are written from their published descriptions
// (https://learn.microsoft.com/azure/azure-resource-manager/management/async-operations,
// https://learn.microsoft.com/entra/identity-platform/v2-oauth2-client-creds-grant-flow).
type manager struct {
	machines *fake.ServerFactoryTransport
	rebooted func(machine string)

	mu         sync.Mutex
	url        string
	revoked    bool
	alone      map[string]*machine // by name
	inSet      map[string]*machine // by id
	operations map[string]*operation
	faults     []fault
	requests   []string
	then       []func() // to do without the lock
	pace       cloudtest.Pace
}

type machine struct {
	id, name, computer    string
	tags                  map[string]*string
	provisioning, power   string
	reboots, terminations int
	deleted               bool
	force                 *bool
}

type operation struct {
	status string
	left   int // times that it is asked about until it is over
	then   func()
}

// fault is what goes wrong with the next restart.
type fault struct {
	status int
	code   string // empty: not an answer of Azure
	wait   string // Retry-After
	cut    bool   // instead, the connection breaks
	hang   bool   // instead, there is no answer
	after  bool   // the restart takes effect first
}

const (
	subscription = "/subscriptions/00000000-1111-2222-3333-444444444444"
	group        = subscription + "/resourceGroups/rg/providers/Microsoft.Compute/"
	tenant       = "55555555-1111-2222-3333-444444444444"
	client       = "66666666-1111-2222-3333-444444444444"
	secret       = "secret~of.the-test"
	testToken    = "token-of-the-test"
)

func newManager(_ *testing.T, rebooted func(string)) *manager {
	m := &manager{rebooted: rebooted, alone: map[string]*machine{}, inSet: map[string]*machine{}, operations: map[string]*operation{}}
	m.machines = fake.NewServerFactoryTransport(&fake.ServerFactory{
		VirtualMachinesServer:           fake.VirtualMachinesServer{Get: m.get, BeginRestart: m.restart, BeginDelete: m.delete},
		VirtualMachineScaleSetVMsServer: fake.VirtualMachineScaleSetVMsServer{Get: m.getInSet, BeginRestart: m.restartInSet},
		VirtualMachineScaleSetsServer:   fake.VirtualMachineScaleSetsServer{BeginDeleteInstances: m.deleteInSet},
	})
	return m
}

// Add adds machines, every other one to a scale set.
func (m *manager) Add(name, _ string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	one := &machine{name: name, computer: name, tags: map[string]*string{}, provisioning: "Succeeded", power: "running"}
	if len(m.alone) <= len(m.inSet) {
		one.id = group + "virtualMachines/" + name
		m.alone[name] = one
	} else {
		one.name = fmt.Sprint(len(m.inSet))
		one.id = group + "virtualMachineScaleSets/pool/virtualMachines/" + one.name
		m.inSet[one.name] = one
	}
	return "azure://" + one.id
}

func (m *manager) find(id string) *machine {
	for _, all := range []map[string]*machine{m.alone, m.inSet} {
		for one := range maps.Values(all) {
			if "azure://"+one.id == id {
				return one
			}
		}
	}
	return nil
}

func (m *manager) Tag(id, key, value string) {
	m.change(func() { m.find(id).tags[key] = &value })
}

func (m *manager) OperationCounts(id string) (reboots, terminations int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	one := m.find(id)
	return one.reboots, one.terminations
}

func (m *manager) Pace(p cloudtest.Pace) { m.change(func() { m.pace = p }) }
func (m *manager) Revoke()               { m.change(func() { m.revoked = true }) }

func (m *manager) change(do func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	do()
}

func there(one *machine) bool { return one != nil && !one.deleted }

func statuses(one *machine) []*armcompute.InstanceViewStatus {
	return []*armcompute.InstanceViewStatus{{Code: new("ProvisioningState/" + strings.ToLower(one.provisioning))}, {Code: new("PowerState/" + one.power)}}
}

func (m *manager) get(_ context.Context, _, name string, o *armcompute.VirtualMachinesClientGetOptions) (r azfake.Responder[armcompute.VirtualMachinesClientGetResponse], e azfake.ErrorResponder) {
	one := m.alone[name]
	if !there(one) {
		e.SetResponseError(http.StatusNotFound, "ResourceNotFound")
		return r, e
	}
	answer := armcompute.VirtualMachine{ID: &one.id, Name: &one.name, Tags: one.tags, Properties: &armcompute.VirtualMachineProperties{
		ProvisioningState: &one.provisioning, OSProfile: &armcompute.OSProfile{ComputerName: &one.computer},
	}}
	if o != nil && o.Expand != nil && *o.Expand == armcompute.InstanceViewTypesInstanceView {
		answer.Properties.InstanceView = &armcompute.VirtualMachineInstanceView{Statuses: statuses(one)}
	}
	r.SetResponse(http.StatusOK, armcompute.VirtualMachinesClientGetResponse{VirtualMachine: answer}, nil)
	return r, e
}

func (m *manager) getInSet(_ context.Context, _, _, id string, o *armcompute.VirtualMachineScaleSetVMsClientGetOptions) (r azfake.Responder[armcompute.VirtualMachineScaleSetVMsClientGetResponse], e azfake.ErrorResponder) {
	one := m.inSet[id]
	if !there(one) {
		e.SetResponseError(http.StatusNotFound, "ResourceNotFound")
		return r, e
	}
	answer := armcompute.VirtualMachineScaleSetVM{ID: &one.id, Tags: one.tags, Properties: &armcompute.VirtualMachineScaleSetVMProperties{
		ProvisioningState: &one.provisioning, OSProfile: &armcompute.OSProfile{ComputerName: &one.computer},
	}}
	if o != nil && o.Expand != nil && *o.Expand == armcompute.InstanceViewTypesInstanceView {
		answer.Properties.InstanceView = &armcompute.VirtualMachineScaleSetVMInstanceView{Statuses: statuses(one)}
	}
	r.SetResponse(http.StatusOK, armcompute.VirtualMachineScaleSetVMsClientGetResponse{VirtualMachineScaleSetVM: answer}, nil)
	return r, e
}

func (m *manager) restart(_ context.Context, _, name string, _ *armcompute.VirtualMachinesClientBeginRestartOptions) (r azfake.PollerResponder[armcompute.VirtualMachinesClientRestartResponse], e azfake.ErrorResponder) {
	r.SetTerminalResponse(http.StatusAccepted, armcompute.VirtualMachinesClientRestartResponse{}, nil)
	m.reboot(m.alone[name], &e)
	return r, e
}

func (m *manager) restartInSet(_ context.Context, _, _, id string, _ *armcompute.VirtualMachineScaleSetVMsClientBeginRestartOptions) (r azfake.PollerResponder[armcompute.VirtualMachineScaleSetVMsClientRestartResponse], e azfake.ErrorResponder) {
	r.SetTerminalResponse(http.StatusAccepted, armcompute.VirtualMachineScaleSetVMsClientRestartResponse{}, nil)
	m.reboot(m.inSet[id], &e)
	return r, e
}

func (m *manager) delete(_ context.Context, _, name string, o *armcompute.VirtualMachinesClientBeginDeleteOptions) (r azfake.PollerResponder[armcompute.VirtualMachinesClientDeleteResponse], e azfake.ErrorResponder) {
	r.SetTerminalResponse(http.StatusAccepted, armcompute.VirtualMachinesClientDeleteResponse{}, nil)
	m.terminate(m.alone[name], o.ForceDeletion, &e)
	return r, e
}

func (m *manager) deleteInSet(_ context.Context, _, _ string, ids armcompute.VirtualMachineScaleSetVMInstanceRequiredIDs, o *armcompute.VirtualMachineScaleSetsClientBeginDeleteInstancesOptions) (r azfake.PollerResponder[armcompute.VirtualMachineScaleSetsClientDeleteInstancesResponse], e azfake.ErrorResponder) {
	r.SetTerminalResponse(http.StatusAccepted, armcompute.VirtualMachineScaleSetsClientDeleteInstancesResponse{}, nil)
	if len(ids.InstanceIDs) != 1 {
		e.SetResponseError(http.StatusBadRequest, "InvalidParameter")
		return r, e
	}
	m.terminate(m.inSet[*ids.InstanceIDs[0]], o.ForceDeletion, &e)
	return r, e
}

func (m *manager) reboot(one *machine, e *azfake.ErrorResponder) {
	switch {
	case !there(one):
		e.SetResponseError(http.StatusNotFound, "ResourceNotFound")
	case one.power != "running":
		e.SetResponseError(http.StatusConflict, "OperationNotAllowed")
	default:
		one.reboots++
		m.begin("restart", func() {})
		m.then = append(m.then, func() { m.rebooted("azure://" + one.id) })
	}
}

func (m *manager) terminate(one *machine, force *bool, e *azfake.ErrorResponder) {
	if !there(one) {
		e.SetResponseError(http.StatusNotFound, "ResourceNotFound")
		return
	}
	if one.provisioning != "Deleting" {
		one.terminations++
	}
	one.provisioning, one.force = "Deleting", force
	m.begin("delete", func() { one.deleted = true })
}

// begin makes an operation, the last one recorded.
func (m *manager) begin(verb string, then func()) {
	m.requests = append(m.requests, verb)
	m.operations[fmt.Sprint(len(m.requests))] = &operation{status: "InProgress", left: 2, then: then}
}
