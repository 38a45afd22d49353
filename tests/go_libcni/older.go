//go:build !newest

package main

import (
	"context"

	"github.com/containernetworking/cni/libcni"
)

func addNewerFields(_ map[string]interface{}, _ *libcni.NetworkConfigList) {}

func (j *job) gc(_ context.Context, _ *step) (map[string]interface{}, error) {
	return nil, errUnsupported
}

func (j *job) status(_ context.Context, _ *step) (map[string]interface{}, error) {
	return nil, errUnsupported
}
