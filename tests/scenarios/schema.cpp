// scenario.schema.json and the loader say the same.

#include <catch2/catch.hpp>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/scenarios/texts.hpp"

using namespace orrery;
using Catch::Matchers::Contains;
using nlohmann::json;

namespace {

const json& schema() {
  static const json kSchema =
      json::parse(std::ifstream(std::filesystem::path(ORRERY_SOURCE_DIR) / "scenarios/scenario.schema.json"));
  return kSchema;
}

const json& section_schema(const std::string& section) {
  return section == "scenario" ? schema() : schema()["definitions"][section];
}

// How an override reaches each section.
std::string path_of(const std::string& section) {
  if (section == "scenario") return "";
  if (section == "fabric") return "cluster.fabric.";
  if (section == "overlap" || section == "recompute" || section == "placement")
    return "plan." + section + ".";
  if (section == "experts" || section == "latent") return "model." + section + ".";
  return section + ".";
}

// Sections whose values a single override can set in the small scenario.
std::vector<std::string> reachable() {
  return {"scenario", "model",   "experts", "latent",  "cluster",  "fabric",
          "plan",     "overlap", "engine",  "profile", "placement"};
}

}  // namespace

TEST_CASE("schema and loader know the same keys", "[scenarios]") {
  CHECK(schema()["definitions"].size() + 1 == scenario_sections().size());
  for (const SectionKeys& section : scenario_sections()) {
    CAPTURE(section.section);
    const json& entry = section_schema(section.section);
    REQUIRE(entry.is_object());
    CHECK(entry["additionalProperties"] == false);
    std::vector<std::string> known = section.keys;
    std::sort(known.begin(), known.end());
    std::vector<std::string> described;
    for (const auto& [key, value] : entry["properties"].items()) {
      CAPTURE(key);
      described.push_back(key);
      CHECK((value.contains("description") || value.contains("$ref")));
    }
    CHECK(described == known);
  }
}

TEST_CASE("each word that the schema lists is read, and no other", "[scenarios]") {
  std::size_t words = 0;
  for (const std::string& section : reachable()) {
    for (const auto& [key, value] : section_schema(section)["properties"].items()) {
      if (!value.contains("enum")) continue;
      for (const auto& word : value["enum"]) {
        const std::string override_text = path_of(section) + key + "=" + word.get<std::string>();
        CAPTURE(override_text);
        // Other keys may now be missing; the word itself must not be at fault.
        CHECK_THAT(message_of(kSmall, {override_text}), !Contains(path_of(section) + key + ": is"));
        CHECK_THAT(message_of(kSmall, {override_text + "x"}), Contains(path_of(section) + key + ": is"));
        ++words;
      }
    }
  }
  CHECK(words > 15);
}

TEST_CASE("the schema's limits are the loader's", "[scenarios]") {
  std::size_t limits = 0;
  for (const std::string& section : reachable()) {
    for (const auto& [key, value] : section_schema(section)["properties"].items()) {
      if (!value.contains("maximum")) continue;
      const std::string name = path_of(section) + key;
      const bool whole = value["type"] == "integer";
      const auto text = [&](double number) {
        return whole ? std::to_string(static_cast<std::int64_t>(number)) : std::to_string(number);
      };
      const double step = whole ? 1 : 0.001;
      CAPTURE(name);
      const auto message = [&](double number) {
        // The describing keys of a cluster don't go with a node of the catalogue.
        const std::string base = section == "cluster" ? "cluster={gpu: h100-sxm}" : "name=x";
        return message_of(kSmall, {base, name + "=" + text(number)});
      };
      const double minimum = value["minimum"].get<double>(), maximum = value["maximum"].get<double>();
      CHECK_THAT(message(minimum), !Contains(name + ": is \""));
      CHECK_THAT(message(maximum), !Contains(name + ": is \""));
      CHECK_THAT(message(minimum - step), Contains(name + ": is \""));
      CHECK_THAT(message(maximum + step), Contains(name + ": is \""));
      ++limits;
    }
  }
  CHECK(limits > 25);
}

TEST_CASE("the schema requires what the loader requires", "[scenarios]") {
  const std::string empty_message = message_of("name: x\n");
  for (const auto& key : schema()["required"]) {
    CHECK_THAT(empty_message, Contains(key.get<std::string>() + ": missing"));
  }
  const std::string no_model = message_of(kSmall, {"model={gated_mlp: false}"});
  for (const auto& key : section_schema("model")["required"]) {
    CHECK_THAT(no_model, Contains("model." + key.get<std::string>() + ": missing"));
  }
  for (const std::string section : {"experts", "latent"}) {
    const std::string empty = message_of(kSmall, {"model." + section + "={}"});
    for (const auto& key : section_schema(section)["required"]) {
      CHECK_THAT(empty, Contains("model." + section + "." + key.get<std::string>() + ": missing"));
    }
  }
  const std::string no_gpu = message_of(kSmall, {"cluster={gpu: {name: x}}"});
  for (const auto& key : section_schema("gpu")["required"]) {
    CHECK_THAT(no_gpu, Contains("cluster.gpu." + key.get<std::string>() + ": missing"));
  }
}
