// davit sign: makes keys, signs images.

#include "cli/command.hpp"
#include "cli/signed_image.hpp"
#include "cli/stage.hpp"
#include "exec/image.hpp"

namespace davit::cli {
namespace {

class SignCommand final : public Command {
 public:
  [[nodiscard]] std::string_view name() const override { return "sign"; }
  [[nodiscard]] std::string_view summary() const override {
    return "Sign an image, or make a pair of keys";
  }

  void add_options(OptionSet& options) override {
    options.group("Model");
    options.add("image,-m,--model", path_, "Image to sign", "", FileUse::kRead);
    options.group("Sign");
    options.add("--key", key_, "Secret key file", "", FileUse::kRead);
    options.add("--new-key", new_key_,
                "Make a secret key in this file, and the public one in FILE.pub", "",
                FileUse::kWritten);
    options.add("-o,--output", output_, "Signature file to write", "IMAGE.sig", FileUse::kWritten);
  }

  Status run(Session& session, OptionSet& options) override {
    if (output_.empty() && !path_.empty()) {
      output_ = path_ + ".sig";
      options.resolve("--output", output_, "beside the image");
    }
    session.echo_settings(options);
    if (!new_key_.empty()) {
      if (!path_.empty() || !key_.empty() || !output_.empty()) {
        return usage_error("--new-key goes with nothing else", "davit sign --new-key release.key");
      }
      set_stage("write");
      if (Status status = make_key_files(new_key_); !status.ok()) return status;
      session.print("Secret key {}: keep it. Public key {}.pub\n", new_key_, new_key_);
      session.result() = {{"secret_key", new_key_}, {"public_key", new_key_ + ".pub"}};
      return {};
    }
    if (path_.empty() || key_.empty()) {
      return usage_error(path_.empty() ? "an image is needed" : "--key is needed",
                         "davit sign IMAGE --key FILE");
    }
    set_stage("load");
    // Whoever signs says that it is an image. Kernels of plug-ins need not be here.
    auto image =
        exec::open_image_file(path_, {.code = exec::CodeUse::kIgnore, .resolve_kernels = false});
    if (!image.ok()) return std::move(image.status());
    set_stage("write");
    auto text = signature_text(path_, key_);
    if (!text.ok()) return std::move(text.status());
    session.print("Signature {}\n", output_);
    session.result() = {{"image", path_}, {"signature", output_}};
    return write_text(output_, *text);
  }

 private:
  std::string path_, key_, new_key_, output_;
};

}  // namespace

std::unique_ptr<Command> make_sign_command() {
  return std::make_unique<SignCommand>();
}

}  // namespace davit::cli
