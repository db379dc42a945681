// The device's work in torch.profiler: a plugin of Kineto, which tells when to record, gives the numbers of
// operators and ranges, and takes the events into its table and its Chrome trace.
//
// A torch that was built without Kineto does not bring its headers; torch.profiler then shows no device.
#if __has_include(<kineto/libkineto.h>)

// Kineto's own objects format their texts; torch exports no fmt.
#define FMT_HEADER_ONLY

#include <opsmith/device/device.h>
#include <opsmith/device/driver.h>
#include <opsmith/profile/recorded_work.h>

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <kineto/libkineto.h>
#include <kineto/output_base.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace opsmith::profile {
namespace {

using libkineto::ActivityType;
using libkineto::GenericTraceActivity;
using libkineto::ITraceActivity;

using ActivityTypes = std::set<ActivityType>;

// The activities that only a device has. PRIVATEUSE1_RUNTIME is asked for with the CPU's activities.
const ActivityTypes kOnDevice{ActivityType::CONCURRENT_KERNEL, ActivityType::GPU_MEMCPY,
                              ActivityType::GPU_USER_ANNOTATION};

ActivityType activity_type(Kind kind) {
  return is_of_host(kind)      ? ActivityType::PRIVATEUSE1_RUNTIME
         : kind == Kind::kCopy ? ActivityType::GPU_MEMCPY
                               : ActivityType::CONCURRENT_KERNEL;
}

std::string activity_name(const Event& event) {
  switch (event.kind) {
    case Kind::kFallback:
      return "fallback of " + event.name;
    case Kind::kHostKernel:
      return event.name + " on the host, on copies";
    default:
      return event.name;
  }
}

std::string device_name(c10::DeviceIndex device) {
  return c10::Device(c10::kPrivateUse1, device).str();
}

// The properties of `device` that TensorBoard shows, in JSON.
std::string properties_json(c10::DeviceIndex device) {
  opsmith_device_properties properties{};
  if (driver().device_properties(device, &properties) != OPSMITH_OK) {
    return "";
  }
  return c10::str("{\"id\": ", static_cast<int>(device), ", \"name\": \"", properties.name,
                  "\", \"totalGlobalMem\": ", properties.total_memory,
                  ", \"numSms\": ", properties.multiprocessors, "}");
}

libkineto::DeviceInfo device_info(c10::DeviceIndex device) {
  return {device, libkineto::kExceedMaxPid + device, device_name(device), driver().name};
}

class Session final : public libkineto::IActivityProfilerSession {
 public:
  explicit Session(ActivityTypes wanted) : wanted_(std::move(wanted)) {}

  void start() override {
    start_recording();
    status_ = libkineto::TraceStatus::RECORDING;
  }

  void stop() override {
    stop_recording();
    events_ = recorded(problems_);
    for (const Event& event : events_) {
      if (!is_of_host(event.kind)) {
        streams_.emplace(event.device, event.stream);
      }
    }
    for (const std::string& problem : problems_) {
      TORCH_WARN("torch.profiler leaves out work of ", device_type_name(),
                 " whose time the device did not tell: ", problem);
    }
    status_ = libkineto::TraceStatus::PROCESSING;
  }

  std::vector<std::string> errors() override { return problems_; }

  void processTrace(libkineto::ActivityLogger& logger) override {
    processTrace(logger, [](int32_t) -> const ITraceActivity* { return nullptr; }, 0, 0);
  }

  void processTrace(libkineto::ActivityLogger& logger, libkineto::getLinkedActivityCallback linked,
                    int64_t start, int64_t end) override {
    activities_ = std::make_unique<libkineto::CpuTraceBuffer>();
    activities_->span = libkineto::TraceSpan(start, end, device_type_name());
    activities_->gpuOpCount = static_cast<int>(events_.size());
    for (const Event& event : events_) {
      add_event(event, event.called_by != 0 ? linked(static_cast<int32_t>(event.called_by)) : nullptr);
    }
    add_ranges(linked);
    for (const auto& activity : activities_->activities) {
      activity->log(logger);
    }
    const std::set<c10::DeviceIndex> used = devices();
    for (auto device = used.begin(); device != used.end(); ++device) {
      if (device != used.begin()) {  // that one is getDeviceInfo()'s
        logger.handleDeviceInfo(device_info(*device), start);
      }
    }
  }

  // It has room for one device; without any, Kineto writes of sixteen GPUs.
  std::unique_ptr<libkineto::DeviceInfo> getDeviceInfo() override {
    const std::set<c10::DeviceIndex> used = devices();
    return std::make_unique<libkineto::DeviceInfo>(device_info(used.empty() ? 0 : *used.begin()));
  }

  std::vector<libkineto::ResourceInfo> getResourceInfos() override {
    std::vector<libkineto::ResourceInfo> streams;
    streams.reserve(streams_.size());
    for (const auto& [device, stream] : streams_) {
      streams.push_back({stream, stream, device, c10::str("stream ", stream)});
    }
    return streams;
  }

  std::unique_ptr<libkineto::CpuTraceBuffer> getTraceBuffer() override { return std::move(activities_); }

  std::string getDeviceProperties() override {
    std::string all;
    for (const c10::DeviceIndex device : devices()) {
      const std::string properties = properties_json(device);
      all += all.empty() || properties.empty() ? properties : ", " + properties;
    }
    return all;
  }

  void pushCorrelationId(uint64_t number) override { enter(Scope::kOperator, number); }
  void popCorrelationId() override { leave(Scope::kOperator); }
  void pushUserCorrelationId(uint64_t number) override { enter(Scope::kRange, number); }
  void popUserCorrelationId() override { leave(Scope::kRange); }

 private:
  std::set<c10::DeviceIndex> devices() const {
    std::set<c10::DeviceIndex> all;
    for (const auto& [device, stream] : streams_) {
      all.insert(device);
    }
    return all;
  }

  GenericTraceActivity& add(ActivityType type, const std::string& name) {
    activities_->emplace_activity(activities_->span, type, name);
    return *activities_->activities.back();
  }

  // An arrow leads from where the operator launched the work to the work.
  void add_event(const Event& event, const ITraceActivity* called_by) {
    const ActivityType type = activity_type(event.kind);
    if (!wanted_.contains(type)) {
      return;
    }
    const int32_t number = ++last_number_;
    const bool has_arrow = called_by != nullptr && !is_of_host(event.kind) &&
                           wanted_.contains(ActivityType::PRIVATEUSE1_RUNTIME);
    if (has_arrow) {
      GenericTraceActivity& launch = add(ActivityType::PRIVATEUSE1_RUNTIME, device_type_name() + " launch");
      launch.startTime = launch.endTime = event.launched;
      launch.device = libkineto::processId();
      launch.resource = launch.threadId = event.thread;
      launch.id = number;
      launch.linked = called_by;
      launch.flow.id = number;
      launch.flow.type = libkineto::kLinkAsyncCpuGpu;
      launch.flow.start = 1;
      launch.addMetadata("correlation", number);
    }
    GenericTraceActivity& work = add(type, activity_name(event));
    work.startTime = event.start;
    work.endTime = event.end;
    if (is_of_host(event.kind)) {
      work.device = libkineto::processId();
      work.resource = work.threadId = event.thread;
    } else {
      work.device = event.device;
      work.resource = static_cast<int32_t>(event.stream);
    }
    work.id = number;
    work.linked = called_by;
    if (has_arrow) {
      work.flow.id = number;
      work.flow.type = libkineto::kLinkAsyncCpuGpu;
    }
    work.addMetadata("device", static_cast<int>(event.device));
    work.addMetadata("stream", event.stream);
    work.addMetadata("correlation", number);
    if (event.kind != Kind::kKernel) {
      work.addMetadata("bytes", event.bytes);
    }
  }

  // A range of the program, on each stream from the first work that was launched in it to the last.
  void add_ranges(const libkineto::getLinkedActivityCallback& linked) {
    if (!wanted_.contains(ActivityType::GPU_USER_ANNOTATION)) {
      return;
    }
    std::map<std::tuple<uint64_t, c10::DeviceIndex, int64_t>, std::pair<int64_t, int64_t>> spans;
    for (const Event& event : events_) {
      if (event.range != 0 && !is_of_host(event.kind)) {
        const auto [span, is_new] =
            spans.try_emplace({event.range, event.device, event.stream}, event.start, event.end);
        span->second.second = std::max(span->second.second, event.end);
      }
    }
    for (const auto& [where, span] : spans) {
      const auto& [range, device, stream] = where;
      if (const ITraceActivity* const in_program = linked(static_cast<int32_t>(range))) {
        GenericTraceActivity& activity = add(ActivityType::GPU_USER_ANNOTATION, in_program->name());
        std::tie(activity.startTime, activity.endTime) = span;
        activity.device = device;
        activity.resource = static_cast<int32_t>(stream);
        activity.id = static_cast<int32_t>(range);
      }
    }
  }

  ActivityTypes wanted_;
  std::vector<Event> events_;
  std::vector<std::string> problems_;
  std::set<std::pair<c10::DeviceIndex, int64_t>> streams_;
  std::unique_ptr<libkineto::CpuTraceBuffer> activities_;
  int32_t last_number_ = 0;
};

class Plugin final : public libkineto::IActivityProfiler {
 public:
  const std::string& name() const override {
    static const std::string name = "opsmith";
    return name;
  }

  const ActivityTypes& availableActivities() const override { return kOnDevice; }

  std::unique_ptr<libkineto::IActivityProfilerSession> configure(const ActivityTypes& wanted,
                                                                 const libkineto::Config&) override {
    const bool wants_device = std::any_of(kOnDevice.begin(), kOnDevice.end(),
                                          [&](ActivityType type) { return wanted.contains(type); });
    return wants_device && device_count() > 0 ? std::make_unique<Session>(wanted) : nullptr;
  }

  std::unique_ptr<libkineto::IActivityProfilerSession> configure(int64_t, int64_t,
                                                                 const ActivityTypes& wanted,
                                                                 const libkineto::Config& config) override {
    return configure(wanted, config);
  }
};

[[maybe_unused]] const bool plugin_registered = [] {
  libkineto::api().registerProfilerFactory([] { return std::make_unique<Plugin>(); });
  return true;
}();

}  // namespace
}  // namespace opsmith::profile

#endif
