// Command go_libcni executes the steps of conformance vectors, or of any job of that form, with Go libcni.
//
// It reads a JSON list of jobs from stdin and writes a JSON list to stdout: for each job a list with what each of its
// steps gave. Plugins are real executables; what they were given is written down by themselves.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/types/create"
	"github.com/containernetworking/cni/pkg/version"
)

// A job is one vector, or one command line of the tests.
type job struct {
	Path     []string          `json:"path"`
	CacheDir string            `json:"cacheDir"`
	ConfDir  string            `json:"confDir"`
	Environ  map[string]string `json:"environ"`
	Steps    []step            `json:"steps"`
}

// A step is one thing to do. Document, Text and To are the inputs of those steps that need them.
type step struct {
	Kind      string                 `json:"kind"`
	StepFile  string                 `json:"stepFile"`
	Index     int                    `json:"index"`
	RecordsTo string                 `json:"recordsTo"`
	Document  []byte                 `json:"document"`
	Network   string                 `json:"network"`
	File      string                 `json:"file"`
	Plugin    string                 `json:"plugin"`
	Text      string                 `json:"text"`
	To        string                 `json:"to"`
	Values    map[string]interface{} `json:"values"`
	Remove    []string               `json:"remove"`
	Write     map[string]string      `json:"write"`
	Busy      map[string]float64     `json:"busy"`
	Timeout   float64                `json:"timeout"`
	Valid     [][2]string            `json:"valid"`
	Rt        runtimeConf            `json:"rt"`
}

type runtimeConf struct {
	ContainerID    string                 `json:"container_id"`
	NetNS          string                 `json:"netns"`
	IfName         string                 `json:"ifname"`
	Args           [][2]string            `json:"args"`
	CapabilityArgs map[string]interface{} `json:"capability_args"`
}

func (rt *runtimeConf) libcni() *libcni.RuntimeConf {
	return &libcni.RuntimeConf{
		ContainerID:    rt.ContainerID,
		NetNS:          rt.NetNS,
		IfName:         rt.IfName,
		Args:           rt.Args,
		CapabilityArgs: rt.CapabilityArgs,
	}
}

// An outcome is what a step gave.
type outcome struct {
	Value       map[string]interface{} `json:"value"`
	Error       *failure               `json:"error,omitempty"`
	Unsupported bool                   `json:"unsupported,omitempty"`
	Seconds     float64                `json:"seconds"`
}

type failure struct {
	Text    string `json:"text"`
	Code    *uint  `json:"code,omitempty"`
	Msg     string `json:"msg,omitempty"`
	Details string `json:"details,omitempty"`
}

var errUnsupported = errors.New("not in this version of Go libcni")

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(input io.Reader, output io.Writer) error {
	var jobs []job
	if err := json.NewDecoder(input).Decode(&jobs); err != nil {
		return err
	}
	results := make([][]outcome, 0, len(jobs))
	for _, job := range jobs {
		results = append(results, job.run())
	}
	return json.NewEncoder(output).Encode(results)
}

func (j *job) run() []outcome {
	for name, value := range j.Environ {
		os.Setenv(name, value)
		defer os.Unsetenv(name)
	}
	outcomes := make([]outcome, 0, len(j.Steps))
	for i := range j.Steps {
		outcomes = append(outcomes, j.one(&j.Steps[i]))
	}
	return outcomes
}

func (j *job) one(s *step) (result outcome) {
	begun := time.Now()
	defer holdOpen(s.Busy)()
	defer func() {
		if problem := recover(); problem != nil {
			result = outcome{Error: &failure{Text: fmt.Sprintf("panic: %v", problem)}}
		}
		result.Seconds = time.Since(begun).Seconds()
		keepRecords(filepath.Join(j.CacheDir, "results"), s.RecordsTo)
	}()
	if s.StepFile != "" {
		if err := os.WriteFile(s.StepFile, []byte(fmt.Sprintf("%d\n", s.Index)), 0o600); err != nil {
			return outcome{Error: told(err)}
		}
	}
	value, err := j.do(s)
	if err == errUnsupported {
		return outcome{Unsupported: true}
	}
	return outcome{Value: value, Error: told(err)}
}

// holdOpen holds executables open for writing, each for its seconds; the function that it returns waits for the end.
func holdOpen(busy map[string]float64) func() {
	var group sync.WaitGroup
	for path, seconds := range busy {
		file, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			continue
		}
		group.Add(1)
		time.AfterFunc(time.Duration(seconds*float64(time.Second)), func() {
			file.Close()
			group.Done()
		})
	}
	return group.Wait
}

// keepRecords copies the records as they are after a step, for the caller to look at.
func keepRecords(from, to string) {
	if to == "" {
		return
	}
	entries, err := os.ReadDir(from)
	if err != nil || os.MkdirAll(to, 0o700) != nil {
		return
	}
	for _, entry := range entries {
		if data, err := os.ReadFile(filepath.Join(from, entry.Name())); err == nil {
			_ = os.WriteFile(filepath.Join(to, entry.Name()), data, 0o600)
		}
	}
}

func told(err error) *failure {
	if err == nil {
		return nil
	}
	text := &failure{Text: err.Error()}
	var said *types.Error
	if errors.As(err, &said) {
		text.Code, text.Msg, text.Details = &said.Code, said.Msg, said.Details
	}
	return text
}

func (j *job) do(s *step) (map[string]interface{}, error) {
	ctx := context.Background()
	if s.Timeout > 0 {
		limited, cancel := context.WithTimeout(ctx, time.Duration(s.Timeout*float64(time.Second)))
		defer cancel()
		ctx = limited
	}
	actions := map[string]func(context.Context, *step) (map[string]interface{}, error){
		"load": j.load, "add": j.add, "check": j.check, "del": j.del,
		"add_one": j.addOne, "check_one": j.checkOne, "del_one": j.delOne,
		"version": j.version, "validate": j.validate, "parse": convert, "convert": convert,
		"parse_version": parseVersion, "cached_result": j.cachedResult, "cached_config": j.cachedConfig,
		"remove": remove, "write": write, "gc": j.gc, "status": j.status,
	}
	action, ok := actions[s.Kind]
	if !ok {
		return nil, errUnsupported
	}
	return action(ctx, s)
}

func (j *job) cni() *libcni.CNIConfig {
	exec := &invoke.DefaultExec{RawExec: &invoke.RawExec{Stderr: io.Discard}, PluginDecoder: version.PluginDecoder{}}
	return libcni.NewCNIConfigWithCacheDir(j.Path, j.CacheDir, exec)
}

func (j *job) list(s *step) (*libcni.NetworkConfigList, error) {
	switch {
	case s.Network != "":
		return libcni.LoadConfList(j.ConfDir, s.Network)
	case strings.HasSuffix(s.File, ".conflist"):
		return libcni.ConfListFromFile(filepath.Join(j.ConfDir, s.File))
	case s.File != "":
		conf, err := libcni.ConfFromFile(filepath.Join(j.ConfDir, s.File))
		if err != nil {
			return nil, err
		}
		return libcni.ConfListFromConf(conf)
	}
	return libcni.ConfListFromBytes(s.Document)
}

func (j *job) load(_ context.Context, s *step) (map[string]interface{}, error) {
	list, err := j.list(s)
	if err != nil {
		return nil, err
	}
	plugins := make([]string, 0, len(list.Plugins))
	for _, plugin := range list.Plugins {
		plugins = append(plugins, plugin.Network.Type)
	}
	loaded := map[string]interface{}{
		"name": list.Name, "cni_version": list.CNIVersion, "disable_check": list.DisableCheck, "plugins": plugins,
	}
	addNewerFields(loaded, list)
	return map[string]interface{}{"loaded": loaded}, nil
}

func printed(result types.Result, err error) (map[string]interface{}, error) {
	if err != nil {
		return nil, err
	}
	return map[string]interface{}{"result": result}, nil
}

func (j *job) add(ctx context.Context, s *step) (map[string]interface{}, error) {
	list, err := j.list(s)
	if err != nil {
		return nil, err
	}
	return printed(j.cni().AddNetworkList(ctx, list, s.Rt.libcni()))
}

func (j *job) check(ctx context.Context, s *step) (map[string]interface{}, error) {
	list, err := j.list(s)
	if err != nil {
		return nil, err
	}
	return nil, j.cni().CheckNetworkList(ctx, list, s.Rt.libcni())
}

func (j *job) del(ctx context.Context, s *step) (map[string]interface{}, error) {
	list, err := j.list(s)
	if err != nil {
		return nil, err
	}
	return nil, j.cni().DelNetworkList(ctx, list, s.Rt.libcni())
}

func (j *job) addOne(ctx context.Context, s *step) (map[string]interface{}, error) {
	conf, err := libcni.ConfFromBytes(s.Document)
	if err != nil {
		return nil, err
	}
	return printed(j.cni().AddNetwork(ctx, conf, s.Rt.libcni()))
}

func (j *job) checkOne(ctx context.Context, s *step) (map[string]interface{}, error) {
	conf, err := libcni.ConfFromBytes(s.Document)
	if err != nil {
		return nil, err
	}
	return nil, j.cni().CheckNetwork(ctx, conf, s.Rt.libcni())
}

func (j *job) delOne(ctx context.Context, s *step) (map[string]interface{}, error) {
	conf, err := libcni.ConfFromBytes(s.Document)
	if err != nil {
		return nil, err
	}
	return nil, j.cni().DelNetwork(ctx, conf, s.Rt.libcni())
}

func (j *job) version(ctx context.Context, s *step) (map[string]interface{}, error) {
	info, err := j.cni().GetVersionInfo(ctx, s.Plugin)
	if err != nil {
		return nil, err
	}
	return map[string]interface{}{"versions": info.SupportedVersions()}, nil
}

func (j *job) validate(ctx context.Context, s *step) (map[string]interface{}, error) {
	list, err := j.list(s)
	if err != nil {
		return nil, err
	}
	capabilities, err := j.cni().ValidateNetworkList(ctx, list)
	problems := []string{}
	if err != nil {
		problems = append(problems, err.Error())
	}
	return map[string]interface{}{
		"valid": err == nil, "problems": problems, "capabilities": capabilities,
	}, nil
}

func convert(_ context.Context, s *step) (map[string]interface{}, error) {
	result, err := create.CreateFromBytes([]byte(s.Text))
	if err != nil || s.Kind == "parse" {
		return printed(result, err)
	}
	return printed(result.GetAsVersion(s.To))
}

func parseVersion(_ context.Context, s *step) (map[string]interface{}, error) {
	major, minor, micro, err := version.ParseVersion(s.Text)
	if err != nil {
		return nil, err
	}
	return map[string]interface{}{"parsed": []int{major, minor, micro}}, nil
}

func (j *job) cachedResult(_ context.Context, s *step) (map[string]interface{}, error) {
	list, err := j.list(s)
	if err != nil {
		return nil, err
	}
	return printed(j.cni().GetNetworkListCachedResult(list, s.Rt.libcni()))
}

func (j *job) cachedConfig(_ context.Context, s *step) (map[string]interface{}, error) {
	list, err := j.list(s)
	if err != nil {
		return nil, err
	}
	data, rt, err := j.cni().GetNetworkListCachedConfig(list, s.Rt.libcni())
	if err != nil || data == nil {
		return map[string]interface{}{"config": nil}, err
	}
	return map[string]interface{}{
		"config": json.RawMessage(data), "args": rt.Args, "capability_args": rt.CapabilityArgs,
	}, nil
}

func remove(_ context.Context, s *step) (map[string]interface{}, error) {
	for _, path := range s.Remove {
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

func write(_ context.Context, s *step) (map[string]interface{}, error) {
	for path, text := range s.Write {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	return nil, nil
}
