// @name@, compiled by relaxd for @target@.
using System;
using System.IO;
using System.Runtime.InteropServices;

namespace Relaxd.@module_name@
{
    /// <summary>What a call found wrong; Code is one of the numbers of @prefix@.h.</summary>
    public sealed class ModelException : Exception
    {
        public ModelException(int code, string message) : base(message) { Code = code; }
        public int Code { get; }
    }

    /// <summary>The values that a dim may have: multiples of one number, from Min to Max.</summary>
    public static class Ranges
    {
@each dims@
        public const long @dim@Min = @min@, @dim@Max = @max@, @dim@Multiple = @multiple@;
@end@
    }

    /// <summary>The sizes that Bind sets.</summary>
    public struct Dims
    {
@each dims@
        /// <summary>@about@</summary>
        public long @dim@;
@end@
    }

    /// <summary>The arrays that Run reads, each in C's order.</summary>
    public sealed class Inputs
    {
@each inputs@
        /// <summary>@about@</summary>
        public @type@[] @tensor@;
@end@
    }

    /// <summary>The arrays that Run gives, each in C's order, and their extents.</summary>
    public sealed class Outputs
    {
@each outputs@
        /// <summary>@about@</summary>
        public @type@[] @tensor@;
        public long[] ShapeOf@tensor@;
@end@
    }

    /// <summary>Memory at a multiple of 64.</summary>
    internal sealed class Block : IDisposable
    {
        private IntPtr allocated;
        public IntPtr At { get; private set; }

        public Block(long bytes)
        {
            allocated = Marshal.AllocHGlobal(new IntPtr(checked(bytes + 64)));
            At = new IntPtr((allocated.ToInt64() + 63) / 64 * 64);
        }

        ~Block() { Dispose(); }

        public void Dispose()
        {
            Marshal.FreeHGlobal(allocated);
            allocated = At = IntPtr.Zero;
            GC.SuppressFinalize(this);
        }
    }
@each weights@

    /// <summary>The content of weights.bin, which any number of models share.</summary>
    public sealed class Weights : IDisposable
    {
        internal readonly Block Block;

        private Weights(Block block) { Block = block; }

        public static Weights Read(string path)
        {
            byte[] content = File.ReadAllBytes(path);
            if (content.LongLength != @weight_bytes@L)
                throw new ModelException(5, path + " has " + content.LongLength + " bytes, the weights of @short@ have @weight_bytes@");
            var block = new Block(content.LongLength);
            Marshal.Copy(content, 0, block.At, content.Length);
            return new Weights(block);
        }

        /// <summary>Gives the memory back, after all models that share it are disposed of.</summary>
        public void Dispose() { Block.Dispose(); }
    }
@end@

    /// <summary>A context of the model, for one thread at a time: Bind, then Run as often as you like.</summary>
    public sealed class Model : IDisposable
    {
        private const string Library = "@prefix@";

        [DllImport(Library)] private static extern UIntPtr @prefix@_size();
        [DllImport(Library)] private static extern int @prefix@_open(IntPtr at, IntPtr weights, IntPtr host);
        [DllImport(Library)] private static extern long @prefix@_bind(IntPtr at, long[] dims);
        [DllImport(Library)] private static extern int @prefix@_arena(IntPtr at, IntPtr arena);
        [DllImport(Library)] private static extern int @prefix@_run(IntPtr at, IntPtr[] inputs, IntPtr[] outputs);
        [DllImport(Library)] private static extern IntPtr @prefix@_shape(IntPtr at, int output);
        [DllImport(Library)] private static extern IntPtr @prefix@_output(IntPtr at, int output);
        [DllImport(Library)] private static extern IntPtr @prefix@_failure(IntPtr at);
        [DllImport(Library)] private static extern void @prefix@_close(IntPtr at);

        private Block context, arena;
        private Dims dims;
        private bool isBound;
@each weights@
        private readonly Weights weights;

        public Model(Weights weights)
        {
            this.weights = weights;
            IntPtr at = weights.Block.At;
@end@
@each embedded@

        public Model()
        {
            IntPtr at = IntPtr.Zero;
@end@
            context = new Block((long)@prefix@_size());
            Check(@prefix@_open(context.At, at, IntPtr.Zero));
        }

@each inputs@
        public static long[] ShapeOf@tensor@(Dims d) { return new long[] { @shape@ }; }
@end@

        /// <summary>The number of elements of a shape.</summary>
        public static long Count(long[] shape)
        {
            long all = 1;
            foreach (long extent in shape) all = checked(all * extent);
            return all;
        }

        /// <summary>Sets the dims; throws where one is out of its range.</summary>
        public void Bind(Dims d)
        {
            Require(context != null, "the model is disposed of");
            isBound = false;
            long need = @prefix@_bind(context.At, new long[] {
@each dims@
                d.@dim@,
@end@
                0 });
            if (need < 0) Check((int)-need);
            if (arena != null) arena.Dispose();
            arena = new Block(need);
            Check(@prefix@_arena(context.At, arena.At));
            dims = d;
            isBound = true;
        }

        /// <summary>Computes the outputs, in arrays of their own.</summary>
        public Outputs Run(Inputs inputs)
        {
            Require(context != null && isBound, "bind the dims before a run");
@each inputs@
            RequireLength("@tensor@", inputs.@tensor@, Count(ShapeOf@tensor@(dims)));
@end@
            var pinned = new GCHandle[@input_count@];
            var given = new IntPtr[@input_count@ + 1];
            try
            {
@each inputs@
                pinned[@index@] = GCHandle.Alloc(inputs.@tensor@, GCHandleType.Pinned);
@end@
                for (int i = 0; i < pinned.Length; ++i)
                {
                    given[i] = pinned[i].AddrOfPinnedObject();
                    if (given[i] == IntPtr.Zero) given[i] = context.At;
                }
                Check(@prefix@_run(context.At, given, null));
            }
            finally
            {
                foreach (GCHandle handle in pinned)
                    if (handle.IsAllocated) handle.Free();
@each weights@
                GC.KeepAlive(weights);
@end@
            }
            var outputs = new Outputs();
@each outputs@
            outputs.ShapeOf@tensor@ = ReadShape(@index@, @rank@);
            outputs.@tensor@ = new @type@[Count(outputs.ShapeOf@tensor@)];
            ReadOutput(@index@, outputs.@tensor@, sizeof(@type@));
@end@
            return outputs;
        }

        public void Dispose()
        {
            if (context == null) return;
            @prefix@_close(context.At);
            context.Dispose();
            if (arena != null) arena.Dispose();
            context = arena = null;
        }

        private long[] ReadShape(int output, int rank)
        {
            var shape = new long[rank];
            if (rank > 0) Marshal.Copy(@prefix@_shape(context.At, output), shape, 0, rank);
            return shape;
        }

        private void ReadOutput(int output, Array into, int item)
        {
            var bytes = new byte[checked(into.Length * item)];
            if (bytes.Length > 0) Marshal.Copy(@prefix@_output(context.At, output), bytes, 0, bytes.Length);
            Buffer.BlockCopy(bytes, 0, into, 0, bytes.Length);
        }

        private void Check(int status)
        {
            if (status != 0)
                throw new ModelException(status, Marshal.PtrToStringAnsi(@prefix@_failure(context.At)));
        }

        private static void RequireLength(string name, Array data, long wanted)
        {
            long have = data == null ? 0 : data.LongLength;
            Require(data != null && have == wanted, name + " has " + have + " elements, it must have " + wanted);
        }

        private static void Require(bool condition, string message)
        {
            if (!condition) throw new ModelException(5, message);
        }
    }
}
