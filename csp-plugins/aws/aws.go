package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/nvidia/nvsentinel/csp-plugins/internal/cloud"
)

// Provider controls instances of EC2.
type Provider struct {
	ec2 *ec2.Client
}

// callLimit bounds one HTTP exchange with EC2; it is less than the janitor's own
// limit of a call.
const callLimit = 20 * time.Second

// New makes the provider. Credentials are found as the SDK finds them: by the
// web identity of the service account, the environment, a file or the instance.
func New(ctx context.Context, c Config) (*Provider, error) {
	found, err := config.LoadDefaultConfig(ctx, config.WithRegion(c.Region))
	if err != nil {
		return nil, fmt.Errorf("finding the EC2 configuration: %w", err)
	}
	return &Provider{ec2: ec2.NewFromConfig(found, func(o *ec2.Options) {
		if c.Endpoint != "" {
			o.BaseEndpoint = &c.Endpoint
		}
		o.HTTPClient = &http.Client{Timeout: callLimit}
		// The janitor repeats; a client that repeats by itself could do a thing twice.
		o.Retryer = aws.NopRetryer{}
	})}, nil
}

// providerID is that of the Kubernetes cloud provider of AWS:
// aws:///us-west-2a/i-0123456789abcdef0. Zones of other partitions are longer.
var providerID = regexp.MustCompile(`^aws:///[a-z0-9-]+/(i-[0-9a-f]{8,17})$`)

// instance is the EC2 id of a machine.
func instance(machine string) (string, error) {
	match := providerID.FindStringSubmatch(machine)
	if match == nil {
		return "", cloud.Malformed(machine, "aws:///ZONE/i-ID")
	}
	return match[1], nil
}

// State asks for the state of the instance and for EC2's checks of it.
func (p *Provider) State(ctx context.Context, machine string) (cloud.State, error) {
	id, err := instance(machine)
	if err != nil {
		return "", err
	}
	answer, err := p.ec2.DescribeInstanceStatus(ctx, &ec2.DescribeInstanceStatusInput{
		InstanceIds: []string{id}, IncludeAllInstances: aws.Bool(true),
	})
	switch {
	case code(err) == "InvalidInstanceID.NotFound":
		return cloud.Gone, nil
	case err != nil:
		return "", answered(err)
	case len(answer.InstanceStatuses) == 0:
		return cloud.Gone, nil
	}
	return stateOf(answer.InstanceStatuses[0]), nil
}

// Kinds of names of an instance, which EC2 itself makes.
const (
	PrivateDNSName = "private-dns-name"
	InstanceID     = "instance-id"
)

// Kinds are all of them.
var Kinds = []string{PrivateDNSName, InstanceID}

// Canonical is the instance's id: nobody checks the zone in spec.providerID.
func (p *Provider) Canonical(machine string) (string, error) { return instance(machine) }

// Identity asks for the instance's own private DNS name and its tags. The names and
// addresses of further network interfaces are left out: the role of nodes may attach some
// (AmazonEKS_CNI_Policy).
func (p *Provider) Identity(ctx context.Context, machine string) (cloud.Identity, error) {
	id, err := instance(machine)
	if err != nil {
		return cloud.Identity{}, err
	}
	answer, err := p.ec2.DescribeInstances(ctx, &ec2.DescribeInstancesInput{InstanceIds: []string{id}})
	if err != nil {
		return cloud.Identity{}, answered(err)
	}
	found := cloud.Identity{Names: map[string][]string{}, Tags: map[string]string{}}
	for _, reservation := range answer.Reservations {
		for _, i := range reservation.Instances {
			found.Names[PrivateDNSName], found.Names[InstanceID] = []string{aws.ToString(i.PrivateDnsName)}, []string{aws.ToString(i.InstanceId)}
			for _, tag := range i.Tags {
				found.Tags[aws.ToString(tag.Key)] = aws.ToString(tag.Value)
			}
		}
	}
	return found, nil
}

func stateOf(s types.InstanceStatus) cloud.State {
	switch {
	case s.InstanceState == nil:
		return cloud.NotUp
	case s.InstanceState.Name == types.InstanceStateNameTerminated:
		return cloud.Gone
	case s.InstanceState.Name != types.InstanceStateNameRunning || !passed(s.InstanceStatus) || !passed(s.SystemStatus):
		return cloud.NotUp
	}
	return cloud.Up
}

// passed reports whether a check of EC2 found nothing wrong.
func passed(s *types.InstanceStatusSummary) bool {
	return s != nil && (s.Status == types.SummaryStatusOk || s.Status == types.SummaryStatusNotApplicable)
}

// Reboot asks for a reboot. EC2 takes the power by itself if the operating
// system does not go down, so force changes nothing.
func (p *Provider) Reboot(ctx context.Context, machine string, _ bool) error {
	id, err := instance(machine)
	if err != nil {
		return err
	}
	_, err = p.ec2.RebootInstances(ctx, &ec2.RebootInstancesInput{InstanceIds: []string{id}})
	return answered(err)
}

// Terminate gives the instance back; with force EC2 does not wait for the
// operating system.
func (p *Provider) Terminate(ctx context.Context, machine string, force bool) error {
	id, err := instance(machine)
	if err != nil {
		return err
	}
	input := &ec2.TerminateInstancesInput{InstanceIds: []string{id}}
	if force {
		input.SkipOsShutdown = aws.Bool(true)
	}
	_, err = p.ec2.TerminateInstances(ctx, input)
	return answered(err)
}

// Config is the configuration of the plugin.
type Config struct {
	cloud.Config
	cloud.Proof
	// Region of the instances; empty is what the SDK finds.
	Region string `toml:"region" flag:"region" usage:"Region of the instances. Empty uses AWS_REGION, the profile or the region of the instance that runs the plugin."`
	// Endpoint replaces EC2's address.
	Endpoint string `toml:"endpoint" flag:"ec2-endpoint" usage:"URL of the EC2 API, for a VPC endpoint. Empty uses the endpoint of the region."`
}

// Default is the configuration without a file.
func Default() Config {
	return Config{Config: cloud.Default(), Proof: cloud.Proof{NodeNameFrom: Kinds}}
}

// Validate joins everything that is wrong.
func (c Config) Validate() error { return errors.Join(c.Config.Validate(), c.Proof.Validate(Kinds)) }
