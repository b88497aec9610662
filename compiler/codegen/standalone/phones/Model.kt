// @NAME@, compiled by relaxd for @TARGET@. @JNI@ is what it calls, in C.
package relaxd

import java.nio.ByteBuffer
import java.nio.ByteOrder

/**
 * A context of the model, for one thread at a time: bind, write the inputs, run, read the outputs.
 *
 * weights: the content of weights.bin in a direct buffer, such as a mapped file; null where there
 * is none.
 */
class @CLASS@(private val weights: ByteBuffer?) : AutoCloseable {
    private var opened = nativeOpen(weights)
    private val handle: Long get() = opened.also { check(it != 0L) { "the model is closed" } }

@INPUTS@
    /**
     * Sets the dims, after which the inputs have their sizes and outputs are void.
@DIMS@
     */
    fun bind(@PARAMETERS@) {
        nativeBind(handle, longArrayOf(@VALUES@))
@ROOMS@    }

    /** Computes the outputs of what the inputs hold. */
    fun run() = nativeRun(handle, arrayOf<ByteBuffer>(@GIVEN@))

    /** The extents of an output; -1 where only a run knows one. */
    fun shape(output: Int): LongArray = nativeShape(handle, output)

@OUTPUTS@
    override fun close() {
        if (opened != 0L) nativeClose(opened)
        opened = 0L
    }

    companion object {
        init {
            System.loadLibrary("@PREFIX@")
        }

        private fun room(bytes: Long): ByteBuffer =
            ByteBuffer.allocateDirect(Math.toIntExact(bytes)).order(ByteOrder.nativeOrder())

        @JvmStatic private external fun nativeOpen(weights: ByteBuffer?): Long
        @JvmStatic private external fun nativeBind(handle: Long, dims: LongArray)
        @JvmStatic private external fun nativeRun(handle: Long, inputs: Array<ByteBuffer>)
        @JvmStatic private external fun nativeOutput(handle: Long, output: Int): ByteBuffer
        @JvmStatic private external fun nativeShape(handle: Long, output: Int): LongArray
        @JvmStatic private external fun nativeClose(handle: Long)
    }
}
