package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/health"
	"github.com/aws/smithy-go"

	"github.com/nvidia/nvsentinel/health-monitors/csp-health-monitor/announcement"
)

// CloudConfig defines which part of AWS is asked.
type CloudConfig struct {
	// Region of the instances; empty is what the SDK finds.
	Region string `toml:"region" flag:"region" usage:"Region of the instances. Empty uses AWS_REGION, the profile or the region of the instance that runs the monitor."`
	// WithoutHealth asks EC2 alone: AWS Health is part of some support plans only.
	WithoutHealth bool `toml:"withoutHealth" flag:"without-health" usage:"If true, reads scheduled events from EC2 only. The AWS Health API needs a Business, Enterprise On-Ramp or Enterprise support plan."`
	// EC2Endpoint and HealthEndpoint replace the addresses of the APIs.
	EC2Endpoint    string `toml:"ec2Endpoint" flag:"ec2-endpoint" usage:"URL of the EC2 API, for a VPC endpoint. Empty uses the endpoint of the region."`
	HealthEndpoint string `toml:"healthEndpoint" flag:"health-endpoint" usage:"URL of the AWS Health API. Empty uses the endpoint of the partition."`
}

// callLimit bounds one HTTP exchange.
const callLimit = 30 * time.Second

// Source is one account in one region.
type Source struct {
	ec2    *ec2.Client
	health *health.Client // nil: EC2 alone
	region string
}

var _ announcement.Source = (*Source)(nil)

// New makes the source. Credentials are found as the SDK finds them: by the web
// identity of the service account, the environment, a file or the instance. Requests
// are retried by the SDK (three attempts), then the reading fails.
func New(ctx context.Context, c CloudConfig) (*Source, error) {
	found, err := config.LoadDefaultConfig(ctx, config.WithRegion(c.Region), config.WithHTTPClient(awshttp.NewBuildableClient().WithTimeout(callLimit)))
	if err != nil {
		return nil, fmt.Errorf("finding the AWS configuration: %w", err)
	}
	if found.Region == "" {
		return nil, errors.New("region: no AWS region is set, set it or AWS_REGION")
	}
	instances := ec2.NewFromConfig(found, func(o *ec2.Options) {
		if c.EC2Endpoint != "" {
			o.BaseEndpoint = &c.EC2Endpoint
		}
	})
	if c.WithoutHealth {
		return Of(instances, nil, found.Region), nil
	}
	return Of(instances, health.NewFromConfig(found, func(o *health.Options) {
		o.Region = healthRegion(found.Region)
		if c.HealthEndpoint != "" {
			o.BaseEndpoint = &c.HealthEndpoint
		}
	}), found.Region), nil
}

// Of makes the source of clients; without one of AWS Health EC2 alone is asked.
func Of(instances *ec2.Client, events *health.Client, region string) *Source {
	return &Source{ec2: instances, health: events, region: region}
}

// healthRegion is where the API of AWS Health answers for a region: one per partition
// (source: https://docs.aws.amazon.com/general/latest/gr/health.html).
func healthRegion(region string) string {
	switch {
	case strings.HasPrefix(region, "cn-"):
		return "cn-northwest-1"
	case strings.HasPrefix(region, "us-gov-"):
		return "us-gov-west-1"
	}
	return "us-east-1"
}

// providerID is that of the Kubernetes cloud provider of AWS:
// aws:///us-west-2a/i-0123456789abcdef0. Zones of other partitions are longer.
var providerID = regexp.MustCompile(`^aws:///[a-z0-9-]+/(i-[0-9a-f]{8,17})$`)

// Machine is the instance's id.
func (s *Source) Machine(id string) (string, bool) {
	return announcement.Match(providerID, id)
}

// Names asks EC2 for the instances' own private DNS names, beside their ids. Names of
// further network interfaces are left out: the role of nodes may attach some.
func (s *Source) Names(ctx context.Context, machines []string) (map[string][]string, error) {
	names := map[string][]string{}
	answer, err := s.ec2.DescribeInstances(ctx, &ec2.DescribeInstancesInput{
		Filters: []types.Filter{{Name: aws.String("instance-id"), Values: machines}}, // one that is gone is no error
	})
	if err != nil {
		return nil, fmt.Errorf("calling ec2:DescribeInstances: %w", refused(err))
	}
	for _, reservation := range answer.Reservations {
		for _, i := range reservation.Instances {
			id := aws.ToString(i.InstanceId)
			names[id] = []string{id, aws.ToString(i.PrivateDnsName)}
		}
	}
	return names, nil
}

// Check asks EC2 for a dry run, and AWS Health for one event and what belongs to it.
func (s *Source) Check(ctx context.Context) error {
	_, err := s.ec2.DescribeInstanceStatus(ctx, &ec2.DescribeInstanceStatusInput{DryRun: aws.Bool(true)})
	if code(err) != "DryRunOperation" {
		return fmt.Errorf("checking ec2:DescribeInstanceStatus: %w", refused(err))
	}
	if s.health == nil {
		return nil
	}
	var calls int
	one, err := s.health.DescribeEvents(ctx, &health.DescribeEventsInput{Filter: s.filter(), MaxResults: aws.Int32(10)})
	if err != nil {
		return fmt.Errorf("checking health:DescribeEvents: %w", refused(err))
	}
	if len(one.Events) == 0 {
		return nil
	}
	if _, err := s.entities(ctx, one.Events[:1], &calls); err != nil {
		return err
	}
	_, err = s.texts(ctx, one.Events[:1], &calls)
	return err
}

// code is the API's error code; empty where the API gave none.
func code(err error) string {
	if e, ok := errors.AsType[smithy.APIError](err); ok {
		return e.ErrorCode()
	}
	return ""
}

// refused adds to an error what ends it, where that is not the next poll.
func refused(err error) error {
	switch code(err) {
	case "SubscriptionRequiredException":
		return fmt.Errorf("%w: the support plan of the account has no AWS Health API, change the plan or set withoutHealth", err)
	case "AccessDeniedException", "UnauthorizedOperation":
		return fmt.Errorf("%w: allow the action in the role, it fails until then", err)
	}
	if err == nil {
		return errors.New("the endpoint executed a dry run, so it is not EC2: check the endpoint")
	}
	return err
}
