// @NAME@, compiled by relaxd for @TARGET@.
import @PREFIX@
import Darwin

public struct @CLASS@Error: Error {
  public let code: Int32
  public let message: String
}

/// A context of the model, for one thread at a time: bind, write the inputs, run, read the outputs.
public final class @CLASS@ {
  private let context: OpaquePointer
  private var weights: UnsafeMutableRawPointer?
  private var weightBytes = 0
  private var arena: UnsafeMutableRawPointer?
  private var rooms = [UnsafeMutableRawPointer?](repeating: nil, count: @INPUTCOUNT@)
@INPUTS@
  /// weights: the path of weights.bin, which is mapped; nil where there is none.
  public init(weights path: String?) throws {
    context = OpaquePointer(try @CLASS@.room(@PREFIX@_size()))
    weightBytes = Int(@PREFIX@_interface().pointee.weights)
    if let path = path, weightBytes > 0 {
      let file = Darwin.open(path, O_RDONLY)
      defer { if file >= 0 { _ = Darwin.close(file) } }
      var status = stat()
      guard file >= 0, fstat(file, &status) == 0, Int(status.st_size) >= weightBytes,
        let at = mmap(nil, weightBytes, PROT_READ, MAP_PRIVATE, file, 0), at != MAP_FAILED
      else { throw @CLASS@Error(code: Int32(RELAXD_USAGE), message: "\(path) cannot be mapped") }
      weights = at
    }
    try check(@PREFIX@_open(context, weights, nil))
  }

  deinit {
    @PREFIX@_close(context)
    free(UnsafeMutableRawPointer(context))
    free(arena)
    rooms.forEach { free($0) }
    if let at = weights { munmap(at, weightBytes) }
  }

  /// Sets the dims, after which the inputs have their sizes and outputs are void.
@DIMS@
  public func bind(@PARAMETERS@) throws {
    let need = @PREFIX@_bind(context, [@VALUES@])
    if need < 0 { try check(Int32(-need)) }
    free(arena)
    arena = try @CLASS@.room(Int(need))
    try check(@PREFIX@_arena(context, arena))
@ROOMS@  }

  /// Computes the outputs of what the inputs hold.
  public func run() throws {
    let inputs = rooms.map { UnsafeRawPointer($0) }
    try check(@PREFIX@_run(context, inputs, nil))
  }

  /// The extents of an output; -1 where only a run knows one.
  public func shape(_ output: Int) -> [Int64] {
    let rank = Int(@PREFIX@_interface().pointee.output[output].rank)
    return Array(UnsafeBufferPointer(start: @PREFIX@_shape(context, Int32(output)), count: rank))
  }

@OUTPUTS@
  private func result<T>(_ output: Int) -> UnsafeBufferPointer<T> {
    let at = @PREFIX@_output(context, Int32(output))?.assumingMemoryBound(to: T.self)
    return UnsafeBufferPointer(start: at, count: Int(shape(output).reduce(1, *)))
  }

  private func given<T>(_ input: Int, _ count: Int64) throws -> UnsafeMutableBufferPointer<T> {
    free(rooms[input])
    rooms[input] = try @CLASS@.room(Int(count) * MemoryLayout<T>.stride)
    return .init(start: rooms[input]!.assumingMemoryBound(to: T.self), count: Int(count))
  }

  private func check(_ status: Int32) throws {
    guard status != 0 else { return }
    throw @CLASS@Error(code: status, message: String(cString: @PREFIX@_failure(context)))
  }

  private static func room(_ bytes: Int) throws -> UnsafeMutableRawPointer {
    var at: UnsafeMutableRawPointer?
    let failed = posix_memalign(&at, 64, bytes + 64) != 0
    if failed { throw @CLASS@Error(code: 3, message: "there is no memory left") }
    return memset(at!, 0, bytes)
  }
}
