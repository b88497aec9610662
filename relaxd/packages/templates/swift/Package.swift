// swift-tools-version:5.5
// @name@, compiled by relaxd for @target@.
import PackageDescription

let package = Package(
  name: "@prefix@",
  platforms: [.iOS(.v13)],
  products: [.library(name: "@module_name@", targets: ["@module_name@"])],
  targets: [
    .binaryTarget(name: "@prefix@", path: "@prefix@.xcframework"),
@each weights@
    .target(
      name: "@module_name@", dependencies: ["@prefix@"], resources: [.copy("weights.bin")]),
@end@
@each embedded@
    .target(name: "@module_name@", dependencies: ["@prefix@"]),
@end@
  ]
)
