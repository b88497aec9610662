# find_package(@prefix@): the target relaxd::@short@, and its files relative to this one.
get_filename_component(_relaxd_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)

if(NOT TARGET relaxd::@short@)
@each shared@
  add_library(relaxd::@short@ SHARED IMPORTED)
  # The library has no name of its own but that of its file.
  set_target_properties(relaxd::@short@ PROPERTIES
    IMPORTED_LOCATION "${_relaxd_prefix}/lib/@link_file@"
    IMPORTED_NO_SONAME TRUE
    INTERFACE_INCLUDE_DIRECTORIES "${_relaxd_prefix}/include")
@end@
@each archived@
  add_library(relaxd::@short@ STATIC IMPORTED)
  set_target_properties(relaxd::@short@ PROPERTIES
    IMPORTED_LOCATION "${_relaxd_prefix}/lib/@link_file@"
    INTERFACE_LINK_LIBRARIES m
    INTERFACE_INCLUDE_DIRECTORIES "${_relaxd_prefix}/include")
@end@
  set_property(TARGET relaxd::@short@ PROPERTY INTERFACE_COMPILE_FEATURES cxx_std_17)
endif()
@each weights@

# For install(FILES ...) and for tests.
set(@prefix@_WEIGHTS "${_relaxd_prefix}/share/@prefix@/weights.bin")
@end@
unset(_relaxd_prefix)
